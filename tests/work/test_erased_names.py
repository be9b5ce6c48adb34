"""Names of directories that show erased values, in versions that still exist and in those given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from erasing import BOB, PERSON, WholeSeconds, erased_without_trace, gave_up
from planted import found_in, key
from tree_copies import shrink

import lakebed
from lakebed import Dataset, DatasetDescriptor, DimensionSchema, by
from lakebed.errors import PredicateError
from lakebed.model.allowed import read_allowed
from lakebed.model.dimensions import DimensionRule
from lakebed.repository import Repository
from lakebed.work.erased_records import Records

SCHEMA = pa.schema([("uid", pa.int64()), ("user", pa.string()), ("n", pa.int64())])
ROWS = [{**BOB, "n": 1}, {**PERSON, "n": 2}]
WHERE = pytest.mark.parametrize("where", [{"user": key(7)}, {"uid": 7}], ids=["user", "uid"])


@pytest.fixture(autouse=True, params=["document", "tree"])
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(Repository.create.__kwdefaults__, "head", str(request.param))
    shrink(monkeypatch)
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, head: str) -> Repository:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    return Repository(WholeSeconds(lake.store)) if head == "tree" else lake


def dimensions(**allowed: Any) -> DimensionSchema:
    rules = [
        DimensionRule(field_name=name, allowed=read_allowed(rule, name))
        for name, rule in allowed.items()
    ]
    return DimensionSchema(dimensions=tuple(rules))


def created(lake: Repository, *functions: Any) -> Dataset:
    return lake.create("visits", DatasetDescriptor(schema=SCHEMA, partition_by=list(functions)))


def counts(visits: Dataset) -> set[int]:
    return {visits.at(version=v).count() for v in range(1, visits.version + 1)}


LATER = {
    "other": {"n": "*"},
    "more": {"user": ["bob"], "n": "*"},
    "before": {"n": "*", "user": ["bob"]},
    "fewer": {"uid": "*"},
}


@WHERE
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@pytest.mark.parametrize("allowed", [["bob"], ["bob", key(7)], "*"], ids=["bob", "both", "all"])
def test_rows_leave_versions_with_other_levels_of_directories(
    lake: Repository,
    tmp_path: Path,
    where: dict[str, Any],
    later: dict[str, Any],
    allowed: list[str] | str,
) -> None:
    both = [by.dimension("user", allowed), by.dimension("uid", "*")]
    visits = created(lake, *(both if "uid" in later else both[:1]))
    visits.append(ROWS)
    visits.dimensions.promote(dimensions(**later), reroute=True)
    before = visits.erase(where, reason="request 17", grace="0s", dry_run=True)
    assert sum(place.row_count for place in before.places) == 2

    if key(7) in allowed:  # the descriptor names the value
        done = visits.erase(where, reason="request 17", grace="0s")
        assert done.is_finished, done.left
    else:
        done = erased_without_trace(visits, where, tmp_path / "lake")

    assert counts(visits) == {1}
    assert sum(place.row_count for place in done.places) == 2


CHANGES = {
    "added": lambda old: old.add_field("more", "string"),
    "dropped": lambda old: old.drop_field("user"),
    "renamed": lambda old: old.rename_field("user", "person"),
    "named as a level": lambda old: old.add_field("user_dimension", "string"),
}


def rerouted_and_changed(lake: Repository, change: str) -> Dataset:
    visits = created(lake, by.dimension("user", "*"))
    visits.append(ROWS)
    visits.append(ROWS)
    visits.dimensions.promote(dimensions(n="*"), reroute=True)
    visits.evolve(CHANGES[change])
    visits.append([{"uid": 8, "n": 9}])
    return visits


@pytest.mark.parametrize("change", CHANGES)
def test_rows_leave_versions_with_other_levels_and_another_schema(
    lake: Repository, tmp_path: Path, change: str
) -> None:
    visits = rerouted_and_changed(lake, change)

    erased_without_trace(visits, {"uid": 7}, tmp_path / "lake")

    assert visits.at(version=2).count() == 2
    assert visits.count() == 3


@pytest.mark.parametrize("change", ["added", "renamed", "named as a level"])
def test_directories_of_other_levels_and_another_schema_are_named_no_more(
    lake: Repository, tmp_path: Path, change: str
) -> None:
    visits = rerouted_and_changed(lake, change)
    visits.delete("uid = 7")
    gave_up(visits)

    field = "person" if change == "renamed" else "user"
    erased_without_trace(visits, {field: key(7)}, tmp_path / "lake")

    assert visits.count() == 3


def test_a_level_was_once_made_of_another_field(lake: Repository, tmp_path: Path) -> None:
    visits = created(lake, by.dimension("n", "*", name="user_dimension"))
    visits.append(ROWS)
    visits.dimensions.promote(dimensions(uid="*"), reroute=True)
    visits.dimensions.promote(dimensions(user=["bob"]), reroute=True)
    assert visits.descriptor.partition_by.functions[0].name == "user_dimension"

    erased_without_trace(visits, {"user": key(7)}, tmp_path / "lake")

    assert counts(visits) == {1}


@WHERE
def test_a_staged_batch_with_other_levels_loses_the_rows(
    lake: Repository, tmp_path: Path, where: dict[str, Any]
) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append([ROWS[0]])
    visits.staged.add(ROWS)
    visits.dimensions.promote(dimensions(n="*"), reroute=True)

    erased_without_trace(visits, where, tmp_path / "lake")

    (staged,) = visits.staged.list()
    assert staged.row_count == 1


def test_a_partition_field_that_older_versions_lack_is_refused(
    lake: Repository, tmp_path: Path
) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append(ROWS)
    visits.dimensions.promote(dimensions(n="*"), reroute=True)

    with pytest.raises(PredicateError, match=r"n_dimension.*user_dimension") as refused:
        visits.erase("n_dimension = '2'", reason="request 17", grace="0s")

    assert "'n'" in refused.value.hint
    assert counts(visits) == {2}
    erased_without_trace(visits, {"n": 2}, tmp_path / "lake")


@pytest.mark.parametrize("is_of_view", [False, True], ids=["partitions", "view"])
@pytest.mark.parametrize("is_committed", [False, True], ids=["staged", "committed"])
@WHERE
def test_partitions_that_a_batch_replaces_are_named_no_more(
    lake: Repository,
    tmp_path: Path,
    where: dict[str, Any],
    *,
    is_of_view: bool,
    is_committed: bool,
) -> None:
    visits = created(lake, "user")
    visits.append([ROWS[0]])
    if is_of_view:
        batch = visits.staged.add(
            ROWS, "overwrite", view=visits.where(f"user IN ('bob', '{key(7)}')")
        )
    else:
        batch = visits.staged.add(ROWS, "rerun", run="a", partitions=True, replace_all=True)
    if is_committed:
        visits.staged.open(batch.batch_id).commit()
    elif is_of_view and "user" in where:
        done = visits.erase(where, reason="request 17", grace="0s")
        assert [one.place for one in done.left] == ["records of batches"]
        visits.staged.open(batch.batch_id).commit()
    elif is_of_view:
        return  # nothing relates the person to the view

    erased_without_trace(visits, where, tmp_path / "lake")

    if not is_committed and not is_of_view:
        visits.staged.open(batch.batch_id).commit()
    assert visits.count() == 1


def test_a_partition_of_which_a_staged_batch_has_no_row_left_is_still_replaced(
    lake: Repository,
) -> None:
    visits = created(lake, "user")
    visits.append([{**PERSON, "n": 3}, ROWS[0]])
    batch = visits.staged.add([{**BOB, "n": 4}, {**PERSON, "n": 5}], "overwrite")

    visits.erase({"n": 5}, reason="request 17", grace="0s")
    visits.staged.open(batch.batch_id).commit()

    assert [row["n"] for row in visits.arrow().to_pylist()] == [4]


@pytest.mark.parametrize("is_merged", [False, True], ids=["facts", "no facts"])
def test_directories_of_given_up_files_that_show_one_of_several_values(
    lake: Repository, tmp_path: Path, *, is_merged: bool
) -> None:
    visits = created(lake, "user")
    visits.append([ROWS[0]])
    visits.append([ROWS[1]])
    visits.delete("uid = 7")
    gave_up(visits)
    if is_merged:
        visits.compact(metadata=True)

    keys = pa.table({"uid": [7, 9], "user": [key(7), key(9)]})
    erased_without_trace(visits, keys, tmp_path / "lake")

    assert visits.erase({"uid": 7, "user": "eve"}, reason="request 18", grace="0s").versions == ()


def test_log_of_a_cleanup_of_an_abandoned_batch(lake: Repository, tmp_path: Path) -> None:
    visits = created(lake, "user")
    visits.append([ROWS[0]])
    visits.staged.add(ROWS, lease="1h")
    gave_up(visits)
    (log,) = (tmp_path / "lake" / "visits" / "cleanups").iterdir()
    assert f"cleanups/{log.name}" in str(found_in(tmp_path / "lake"))

    erased_without_trace(visits, {"uid": 7, "user": key(7)}, tmp_path / "lake")


def test_a_partition_field_of_all_versions_that_exist_is_enough(
    lake: Repository, tmp_path: Path
) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append([ROWS[0]])
    visits.staged.add([ROWS[0]], lease="1h")
    gave_up(visits)  # the log names a directory
    visits.dimensions.promote(dimensions(n="*"), reroute=True)
    visits.append([ROWS[1]])
    gave_up(visits)

    erased_without_trace(visits, "n_dimension = '2'", tmp_path / "lake")

    assert visits.count() == 1


def test_files_of_an_abandoned_batch_with_other_levels_are_cleaned_up(lake: Repository) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append([ROWS[0]])
    batch = visits.staged.add(ROWS, lease="1h")
    visits.dimensions.promote(dimensions(n="*"), reroute=True)

    gave_up(visits)
    gave_up(visits)

    keys = [one.key for one in lake.store.list("visits/data/")]
    assert not any(f"batch_id={batch.batch_id}/" in one for one in keys)


@pytest.mark.parametrize("field", ["uid", "user"])
def test_a_field_was_renamed_to_a_former_level(
    lake: Repository, tmp_path: Path, field: str
) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append(ROWS)
    visits.dimensions.promote(dimensions(n="*"), reroute=True)
    visits.evolve(lambda old: old.rename_field(field, "user_dimension"))

    erased_without_trace(visits, {"user_dimension": PERSON[field]}, tmp_path / "lake")

    assert counts(visits) == {1}


def test_a_field_was_added_with_the_name_of_a_former_level(lake: Repository) -> None:
    visits = created(lake, by.dimension("user", "*"))
    visits.append(ROWS)
    visits.staged.add(ROWS)
    visits.dimensions.promote(dimensions(n="*"), reroute=True)
    visits.evolve(lambda old: old.add_field("user_dimension", "string"))
    visits.append([{"uid": 9, "user": "eve", "n": 3, "user_dimension": "bob"}])

    done = visits.erase({"user_dimension": "bob"}, reason="request 17", grace="0s")

    assert done.row_count == 1
    assert [visits.at(version=v).count() for v in (1, 2, 4)] == [2, 2, 2]
    assert visits.staged.list()[0].row_count == 2


SIGNALS = {
    "like": ("user = '{}'", "user LIKE 'Zq7x%'"),
    "range": ("user >= '{}'", {"user": key(7)}),
    "between": ("user BETWEEN '{0}' AND '{0}'", {"user": key(7)}),
    "several": ("user IN ('bob', '{}') OR n = 5", {"user": key(7)}),
    "computed": ("concat(user, '!') = '{}!'", {"user": key(7)}),
}


@pytest.mark.parametrize("signal", SIGNALS)
def test_ready_signals_of_views_that_name_a_value(
    lake: Repository, tmp_path: Path, signal: str
) -> None:
    view, where = SIGNALS[signal]
    visits = created(lake)
    visits.append(ROWS)
    visits.where(view.format(key(7))).kite.signal_ready()
    visits.where("user = 'bob'").kite.signal_ready()

    erased_without_trace(visits, where, tmp_path / "lake")

    assert visits.where("user = 'bob'").kite.is_ready()


@pytest.mark.parametrize("view", ["user = '{}'", "concat(user, '!') = '{}!'"])
def test_ready_signals_of_a_field_with_a_former_name(
    lake: Repository, tmp_path: Path, view: str
) -> None:
    visits = created(lake)
    visits.append(ROWS)
    visits.where(view.format(key(7))).kite.signal_ready()
    visits.evolve(lambda old: old.rename_field("user", "person"))

    erased_without_trace(visits, {"person": key(7)}, tmp_path / "lake")


@pytest.mark.parametrize("is_committed", [False, True], ids=["staged", "committed"])
def test_examples_of_checks_leave_manifests(
    lake: Repository, tmp_path: Path, *, is_committed: bool
) -> None:
    known = lakebed.checks.condition("user = 'bob'", on_failure="quarantine")
    descriptor = DatasetDescriptor(schema=SCHEMA, checks={"known": known})
    visits = lake.create("visits", descriptor)
    batch = visits.staged.add(ROWS)
    if is_committed:
        visits.staged.open(batch.batch_id).commit()

    erased_without_trace(visits, {"user": key(7)}, tmp_path / "lake")

    visits.staged.open(batch.batch_id).commit()
    assert found_in(tmp_path / "lake") == []
    assert visits.count() == 1


def test_a_staged_batch_loses_a_partition_once_all_its_rows_are_erased(
    lake: Repository, tmp_path: Path
) -> None:
    visits = created(lake, "user")
    visits.append([{**PERSON, "uid": 8, "n": 3}, ROWS[0]])
    batch = visits.staged.add(ROWS, "overwrite")

    visits.erase({"uid": 7}, reason="request 17", grace="0s")
    erased_without_trace(visits, {"uid": 8}, tmp_path / "lake")

    visits.staged.open(batch.batch_id).commit()
    assert visits.count() == 1


def test_a_batch_that_is_staged_during_an_erasure_replaces_its_partitions(
    lake: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = created(lake, "user")
    visits.append(ROWS)
    scrub, batches = Records.scrub_manifests, []

    def after_staging(records: Records) -> int:
        batches.append(visits.staged.add([{**BOB, "n": 4}], "overwrite"))
        return scrub(records)

    monkeypatch.setattr(Records, "scrub_manifests", after_staging)
    visits.erase({"uid": 7}, reason="request 17", grace="0s")
    visits.staged.open(batches[0].batch_id).commit()

    assert [row["n"] for row in visits.arrow().to_pylist()] == [4]

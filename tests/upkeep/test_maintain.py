"""The upkeep of all datasets of a repository: what is due, in which order, and what is left alone."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from heads import change_entries, head_key, rename_property
from tree_copies import shrink

import lakebed
from lakebed import CleanupRule, Dataset, DatasetDescriptor, LayoutRule, Repository
from lakebed.errors import (
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidInputError,
    ReadOnlyError,
    StorageError,
)
from lakebed.state.tree.tree_root import Sizes
from lakebed.store import open_store
from lakebed.testing import DelegatingStore
from lakebed.upkeep.maintenance import DUE_OBJECTS, UPKEEP_STEPS

TODAY = dt.datetime.now(dt.UTC).date()
SCHEMA = pa.schema([("day", pa.date32()), ("shop", pa.string()), ("n", pa.int64())])
NOW = CleanupRule(older_than="0s")
GOLDEN = Path(__file__).parents[1] / "data" / "golden-kartothek" / "plateau-4.6.2" / "store"


def ago(days: int) -> dt.date:
    return TODAY - dt.timedelta(days=days)


def create(lake: Repository, name: str = "sales", **properties: str) -> Dataset:
    named = {key.replace("__", "."): value for key, value in properties.items()}
    return lake.create(name, DatasetDescriptor(schema=SCHEMA, partition_by="day", properties=named))


def fill(sales: Dataset, commits: int = 8, old: int = 3) -> Counter[tuple[str, int]]:
    """Append small files to the present day and one to each old one; return the rows that stay."""
    kept: Counter[tuple[str, int]] = Counter()
    for n in range(commits):
        sales.append([{"day": ago(1), "shop": "north", "n": n}])
        kept[str(ago(1)), n] += 1
    for n in range(old):
        sales.append([{"day": ago(100 + n), "shop": "north", "n": n}])
    return kept


def rows_of(dataset: Dataset) -> Counter[tuple[str, int]]:
    return Counter((str(row["day"]), row["n"]) for row in dataset.arrow().to_pylist())


def wait_for(moment: dt.datetime) -> None:
    while dt.datetime.now(dt.UTC) <= moment:
        time.sleep(0.05)


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake", storage_options={"durable": "false"})


def statuses(upkeep: Any) -> dict[str, str]:
    return {step.step: step.status for step in upkeep.steps}


def test_all_that_is_due_is_done_and_a_second_call_finds_nothing(lake: Repository) -> None:
    sales = create(lake, retention__keep="30d", publish__delta="true")
    expected = fill(sales)
    other = lake.create("other", DatasetDescriptor(schema=SCHEMA))
    other.append([{"day": ago(500), "shop": "north", "n": 1}])

    report = lake.maintain(cleanup=NOW)

    assert statuses(report["sales"]) == {
        "retain": "done",
        "compact": "done",
        "metadata": "nothing",
        "publish": "nothing",  # each commit has published itself
        "cleanup": "done",
    }
    # Without a retention of its own nothing goes, however old it is.
    assert statuses(report["other"]) == dict.fromkeys(("compact", "metadata", "cleanup"), "nothing")
    assert (report.exit_code, report.is_ok, report.is_dry_run) == (0, True, False)
    facts = report["sales"]["retain"].facts
    assert (facts["row_count"], facts["partition_count"], facts["file_count"]) == (3, 3, 3)
    assert rows_of(sales) == expected
    assert len(sales.files()) == 1
    assert rows_of(other) == Counter([(str(ago(500)), 1)])
    version = sales.version
    again = lake.maintain(cleanup=NOW)
    assert {step.status for step in again.steps} == {"nothing"}
    assert sales.version == version


def test_a_dry_run_foretells_the_real_one_and_writes_nothing(lake: Repository) -> None:
    sales = create(lake, retention__keep="30d", retention__delete_where="n = 1")
    fill(sales)
    before = {path: path.stat().st_mtime_ns for path in Path(lake.uri[7:]).rglob("*")}

    planned = lake.maintain(dry_run=True, layout=LayoutRule(min_files=4))

    assert planned.is_dry_run
    assert {path: path.stat().st_mtime_ns for path in Path(lake.uri[7:]).rglob("*")} == before
    done = lake.maintain(layout=LayoutRule(min_files=4))
    for step, names in {
        "retain": ("row_count", "partition_count", "file_count", "size_bytes"),
        "compact": ("partition_count", "files_before", "files_after", "bytes_before"),
        "cleanup": ("object_count", "size_bytes"),
    }.items():
        foretold, made = (one["sales"][step].facts for one in (planned, done))
        assert [foretold[name] for name in names] == [made[name] for name in names], step
    assert planned["sales"]["retain"].facts["row_count"] == 4
    for step in ("retain", "compact"):
        count = planned["sales"][step].facts["request_count"]
        assert isinstance(count, int)
        assert count > 0


def test_a_property_whose_name_only_begins_alike_is_not_a_retention(lake: Repository) -> None:
    create(lake, retention_note="see the wiki")

    report = lake.maintain()

    assert [step.step for step in report["sales"].steps] == ["compact", "metadata", "cleanup"]


def test_a_condition_that_matches_no_row_makes_no_version(lake: Repository) -> None:
    sales = create(lake, retention__keep="3000d", retention__delete_where="shop = 'closed'")
    fill(sales, commits=2)
    version, before = sales.version, rows_of(sales)

    step = lake.maintain(only="retain")["sales"]["retain"]

    assert (step.status, step.summary) == ("nothing", "no row is past the retention")
    assert step.facts["row_count"] == 0
    assert (sales.version, rows_of(sales)) == (version, before)


def test_protections_win_until_they_expire(lake: Repository) -> None:
    sales = create(lake, retention__keep="30d")
    fill(sales, commits=1, old=2)
    everything = rows_of(sales)
    version = sales.version
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    sales.protections.add(version=version, reason="audit", until=until)

    report = lake.maintain(cleanup=NOW)

    assert report["sales"]["retain"].facts["row_count"] == 2
    assert len(rows_of(sales)) == 1
    assert rows_of(sales.at(version=version)) == everything
    assert lake.maintain(cleanup=NOW)["sales"]["cleanup"].facts["expired_protections"] == []
    wait_for(until)

    planned = lake.maintain(cleanup=NOW, dry_run=True)["sales"]["cleanup"]
    step = lake.maintain(cleanup=NOW)["sales"]["cleanup"]

    assert planned.facts["expired_protections"] == [f"version {version}"]
    assert planned.facts["object_count"] == step.facts["object_count"]
    assert step.facts["expired_protections"] == [f"version {version}"]
    assert step.summary.endswith("1 expired protection")
    assert not sales.protections.list()
    assert not [
        path
        for path in Path(lake.uri[7:]).rglob("*")
        if f"day={ago(100)}" in str(path) and path.is_file()
    ]


def test_an_expired_protection_alone_is_something_to_do(lake: Repository) -> None:
    sales = create(lake)
    sales.append([{"day": ago(1), "shop": "north", "n": 1}])
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    sales.protections.add(version=1, reason="audit", until=until)
    wait_for(until)

    step = lake.maintain(only="cleanup")["sales"]["cleanup"]

    assert (step.status, step.summary) == ("done", "1 expired protection")
    assert lake.maintain(only="cleanup")["sales"]["cleanup"].status == "nothing"


def test_a_dataset_that_fails_does_not_stop_the_others(lake: Repository) -> None:
    create(lake, "broken", retention__keep="30d").append([{"day": ago(99), "shop": "a", "n": 1}])
    head = Path(lake.uri[7:]) / head_key("damaged")
    create(lake, "damaged")
    head.write_text("{")
    # As a release before this one accepted it.
    rename_property(lake.store, "broken", "retention.keep", "retention.kept")
    expected = fill(create(lake, "sales", retention__keep="30d"))

    report = lake.maintain(cleanup=NOW, fail=False)

    assert statuses(report["broken"])["retain"] == "failed"
    assert "retention.kept" in report["broken"]["retain"].summary
    assert report["broken"]["cleanup"].status == "skipped"
    assert statuses(report["damaged"]) == {"open": "failed"}
    assert statuses(report["sales"])["retain"] == "done"
    assert rows_of(lake.open("sales")) == expected
    assert report.exit_code == InvalidInputError("").exit_code  # of the first one
    with pytest.raises(InvalidInputError, match=r"retention\.kept") as caught:
        lake.maintain(cleanup=NOW)
    assert "'damaged'" in str(caught.value.__notes__)
    only_damaged = lake.maintain(names="damaged", fail=False)
    assert only_damaged.exit_code == CorruptMetadataError("").exit_code


def test_datasets_that_cannot_be_written_are_named_and_skipped(
    lake: Repository, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "lake", dirs_exist_ok=True)
    foreign = lake.list()
    expected = fill(create(lake, retention__keep="30d"), commits=2)
    create(lake, "newer").append([{"day": ago(1), "shop": "a", "n": 1}])
    change_entries(lake.store, "newer", {"lakebed.format_version": "99"})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.by-dataset-metadata.*")}
    steps: list[tuple[str, str]] = []

    report = lake.maintain(on_step=lambda name, step: steps.append((name, step.status)))

    assert foreign
    assert report.exit_code == 0
    for name in ("newer", *foreign):
        assert report[name].steps == ()
        assert (name, "skipped") in steps
        (record,) = report[name].to_records()
        assert (record["dataset"], record["step"], record["status"]) == (name, None, "skipped")
    assert "format_version 99" in str(report["newer"].skipped)
    assert "not created by Lakebed" in str(report[foreign[0]].skipped)
    assert rows_of(lake.open("sales")) == expected
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {head_key("sales")}


def test_a_repository_that_cannot_be_written_is_an_error(lake: Repository) -> None:
    create(lake)
    reading = DelegatingStore(lake.store)
    reading.supports_compare_and_swap = False

    with pytest.raises(ReadOnlyError):
        Repository(reading).maintain()


def test_names_and_steps_are_checked(lake: Repository) -> None:
    create(lake)

    assert lake.maintain(names=["sales"], only=["compact"])["sales"]["compact"].status == "nothing"
    with pytest.raises(DatasetNotFoundError, match="sale") as caught:
        lake.maintain(names="sale")
    assert "sales" in caught.value.hint
    with pytest.raises(InvalidInputError, match="'compat' is not a step") as mistaken:
        lake.maintain(only="compat")  # type: ignore[arg-type]
    assert "compact" in mistaken.value.hint
    with pytest.raises(InvalidInputError, match="cleanup"):
        lake.maintain(cleanup="7d")  # type: ignore[arg-type]
    assert list(UPKEEP_STEPS)[-1] == "cleanup"


def test_files_that_an_index_lacks_are_indexed(lake: Repository) -> None:
    sales = create(lake)
    fill(sales, commits=3, old=0)
    # The column is named as that of an index, as another tool or a killed build leaves it.
    sales.evolve(
        lambda old: DatasetDescriptor(
            schema=old.schema, partition_by=old.partition_by, index=["n"], properties=old.properties
        )
    )

    planned = lake.maintain(dry_run=True)["sales"]["index"]
    done = lake.maintain()["sales"]["index"]

    assert (planned.status, planned.facts["file_count"]) == ("done", 3)
    assert (done.status, done.facts["columns"], done.facts["file_count"]) == ("done", ["n"], 3)
    assert sales.indices.list()[0].is_complete
    assert lake.maintain()["sales"]["index"].status == "nothing"


def test_long_lists_of_metadata_are_merged(
    lake: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = create(lake)
    fill(sales, commits=6, old=0)
    assert lake.maintain(only="metadata")["sales"]["metadata"].status == "nothing"
    assert DUE_OBJECTS > 8  # more than commits leave at one level
    monkeypatch.setattr("lakebed.upkeep.maintenance.DUE_OBJECTS", 4)

    planned = lake.maintain(only="metadata", dry_run=True)["sales"]["metadata"]
    done = lake.maintain(only="metadata")["sales"]["metadata"]

    assert (planned.status, done.status) == ("done", "done")
    assert planned.facts["merged"] == done.facts["merged"] == ["files", "history"]
    assert done.facts["objects_after"] == 2
    assert lake.maintain(only="metadata")["sales"]["metadata"].status == "nothing"


def test_runs_of_a_tree_are_merged_where_those_of_a_level_lag(
    lake: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of many files has many leaves, and their number alone is no reason."""
    monkeypatch.setattr("lakebed.upkeep.maintenance.DUE_OBJECTS", 4)
    sizes = Sizes(leaf=1, buffer=2, inline=8, fanout=3, merge=0)
    shrink(monkeypatch, sizes)
    sales = lake.create("sales", DatasetDescriptor(schema=SCHEMA, partition_by="day"), head="tree")
    for n in range(3):
        sales.append([{"day": ago(n + since), "shop": "a", "n": n} for since in (10, 20)])
    sales.append([{"day": ago(9), "shop": "a", "n": 9}])
    few = lake.maintain(only="metadata")["sales"]["metadata"]
    assert (few.status, few.facts["object_counts"]) == ("nothing", {"leaves": 3})  # 6 leaves
    sales.append([{"day": ago(8), "shop": "a", "n": 8}])
    sales.append([{"day": ago(7), "shop": "a", "n": 7}])

    planned = lake.maintain(only="metadata", dry_run=True)["sales"]["metadata"]
    done = lake.maintain(only="metadata")["sales"]["metadata"]

    assert (planned.status, done.status) == ("done", "done")
    assert planned.facts["merged"] == done.facts["merged"] == ["leaves"]
    assert planned.facts["objects_after"] == done.facts["objects_after"]
    assert lake.maintain(only="metadata")["sales"]["metadata"].status == "nothing"
    assert sales.count() == 9


class Failing(DelegatingStore):
    """A store whose answers to some writes are failures, until they have failed often enough."""

    def __init__(self, inner: Any, *, failures: int) -> None:
        super().__init__(inner)
        self.failures = failures

    def _replace(self, *given: Any, **named: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise StorageError("It does not answer.", retryable=True)
        return super()._replace(*given, **named)


def test_a_failure_that_passes_is_tried_again(
    lake: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = create(lake, retention__keep="30d")
    expected = fill(sales, commits=1)
    monkeypatch.setattr("lakebed.upkeep.upkeep_steps.time.sleep", lambda _: None)

    report = Repository(Failing(lake.store, failures=1)).maintain()

    assert report["sales"]["retain"].status == "done"
    assert rows_of(sales) == expected


def test_several_at_once_do_all_of_it_once(lake: Repository) -> None:
    expected = {}
    for name in ("a", "b", "c"):
        expected[name] = fill(create(lake, name, retention__keep="30d"))
    barrier = threading.Barrier(4)

    def maintain() -> Any:
        barrier.wait()
        return Repository(lake.store).maintain()

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: maintain(), range(4)))

    assert [report.exit_code for report in reports] == [0] * 4
    for name, rows in expected.items():
        dataset = lake.open(name)
        assert rows_of(dataset) == rows
        assert len(dataset.files()) == 1
        operations = Counter(commit.operation for commit in dataset.history())
        assert operations["delete"] == 1
        assert dataset.check(deep=True).is_ok


def test_a_dataset_that_is_dropped_meanwhile_is_skipped(lake: Repository) -> None:
    create(lake, "a")
    create(lake, "b")

    def drop(name: str, _step: Any) -> None:
        if name == "a":
            lake.drop("b", if_missing="ignore")

    report = lake.maintain(on_step=drop)

    assert report["b"].skipped
    assert report.exit_code == 0


def test_a_lake_without_datasets() -> None:
    report = Repository(open_store("memory://empty-lake")).maintain()

    assert (report.datasets, report.exit_code) == ((), 0)
    assert "empty" in repr(report)


def test_the_display(lake: Repository) -> None:
    create(lake)
    report = lake.maintain(dry_run=True)

    assert repr(report).startswith("<MaintenanceReport, a dry run, of file://")
    assert "sales compact nothing" in repr(report)
    assert "Plan of upkeep" in report._repr_html_()
    with pytest.raises(KeyError):
        report["other"]
    with pytest.raises(KeyError):
        report["sales"]["retain"]

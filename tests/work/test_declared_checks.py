"""Declared checks: every door enforces them, versions record them, and they change by commits."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from declared_doors import BAD, DOORS, GOOD, SANE, SCHEMA, created, ids_of

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, checks
from lakebed.errors import (
    ChecksFailedError,
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
)

UTC = dt.UTC


def outcomes(commit: Any) -> dict[str, str]:
    return {result.name: result.outcome for result in commit.checks}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("partition_by", [None, "carrier"])
def test_door_refuses_rows_that_fail_a_check(
    lake: Repository, tmp_path: Path, door: str, partition_by: str | None
) -> None:
    flights = created(lake, {"sane": checks.condition(SANE)}, partition_by=partition_by)
    before = flights.version

    with pytest.raises(ChecksFailedError, match=r"sane, condition\('delay >= -120.*-500") as caught:
        DOORS[door](flights, BAD, tmp_path)

    assert caught.value.counts["sane"] == (1 if door == "entity writer" else 2)
    assert flights.version == before
    assert ids_of(flights) == [1, 2]
    assert lake.list() == ["flights"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("action", ["reject", "quarantine"])
def test_door_leaves_out_rows_that_fail_a_check(
    lake: Repository, tmp_path: Path, door: str, action: checks.OnFailure
) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure=action)})

    DOORS[door](flights, BAD, tmp_path)

    (result,) = flights.history()[-1].checks
    assert ids_of(flights) == [1, 2, 12]
    if action == "reject":
        assert (result.outcome, result.count) == ("rejected", 2)
        assert result.examples == ("delay = -500", "delay = -700")
        assert lake.list() == ["flights"]
        return
    assert (result.outcome, result.count) == ("quarantined", 2)
    rows = lake["flights_quarantine"].arrow().to_pylist()
    assert len(rows) == 2
    assert all("Check sane, condition(" in row["reason"] for row in rows)
    assert any("-500" in row["text"] for row in rows)
    assert any("-700" in row["text"] for row in rows)


@pytest.mark.parametrize("door", DOORS)
def test_door_warns(lake: Repository, tmp_path: Path, door: str) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="warn")})

    DOORS[door](flights, BAD, tmp_path)

    (result,) = flights.history()[-1].checks
    assert (result.outcome, result.count) == ("warned", 2)
    assert ids_of(flights) == [1, 2, 11, 12, 13]
    assert [one.outcome for one in flights.inspect.checks()] == ["warned"]


@pytest.mark.parametrize("door", DOORS)
def test_door_refuses_known_keys(lake: Repository, tmp_path: Path, door: str) -> None:
    flights = created(lake, {"ids": checks.unique("id")}, index=("id",))
    rows = [{"id": 2, "delay": 0, "carrier": "UA"}, {"id": 3, "delay": 0, "carrier": "UA"}]
    if door == "upsert":
        assert flights.upsert(pa.Table.from_pylist(rows, SCHEMA), on="id").commit is not None
        assert ids_of(flights) == [1, 2, 3]
        return

    with pytest.raises(ChecksFailedError, match=r"ids, unique\(id\): .* such as id = 2"):
        DOORS[door](flights, rows, tmp_path)

    assert ids_of(flights) == [1, 2]


def test_updated_rows_cannot_be_left_out(lake: Repository) -> None:
    for number, action in enumerate(("refuse", "reject", "quarantine")):
        check = checks.condition(SANE, on_failure=action)  # type: ignore[arg-type]  # one of them
        flights = lake.create(
            f"f{number}",
            DatasetDescriptor(schema=SCHEMA, checks={"sane": check}, partition_by="carrier"),
        )
        flights.append(GOOD)
        with pytest.raises(ChecksFailedError, match="1 row fails, such as delay = -500"):
            flights.where("id = 1").update_rows({"delay": -500})
        with pytest.raises(ChecksFailedError, match="1 row fails, such as delay = -500"):
            flights.where("id = 1").update_rows({"delay": -500, "carrier": "'ZZ'"})
        with pytest.raises(ChecksFailedError, match="1 row fails"):
            flights.upsert([{"id": 1, "delay": -500, "carrier": "UA"}], on="id")
        assert flights.version == 1
        assert flights.where("id = 1").update_rows({"delay": 8, "carrier": "'ZZ'"}) is not None
        assert outcomes(flights.history()[-1]) == {"sane": "passed"}


def test_update_of_one_row_does_not_mind_its_neighbours(lake: Repository) -> None:
    flights = created(lake, {})
    flights.append(BAD)
    flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)), existing="unchecked")

    assert flights.where("id = 12").update_rows({"delay": 8}) is not None
    assert flights.compact() is not None
    assert len(ids_of(flights)) == 5
    assert [one.outcome for one in flights.inspect.checks()] == ["not checked"]


def test_unique_of_a_batch_and_of_several_columns(lake: Repository) -> None:
    flights = created(
        lake, {"ids": checks.unique("id", of="batch"), "pairs": checks.unique("id", "carrier")}
    )
    flights.append([{"id": 1, "delay": 0, "carrier": "ZZ"}])
    with pytest.raises(ChecksFailedError, match=r"ids, unique\(id\): 2 rows fail"):
        flights.append(
            [{"id": 7, "delay": 0, "carrier": "UA"}, {"id": 7, "delay": 0, "carrier": "AA"}]
        )
    with pytest.raises(ChecksFailedError, match=r"pairs, unique\(id, carrier\): 1 row fails"):
        flights.append([{"id": 1, "delay": 0, "carrier": "ZZ"}])
    assert len(ids_of(flights)) == 3


def test_null_equals_null_in_a_key(lake: Repository) -> None:
    flights = created(lake, {"ids": checks.unique("id")})
    flights.append([{"id": None, "delay": 0, "carrier": "UA"}])

    with pytest.raises(ChecksFailedError, match="such as id = null"):
        flights.append([{"id": None, "delay": 0, "carrier": "UA"}])


def test_index_finds_the_files_of_known_keys(lake: Repository, monkeypatch: Any) -> None:
    from lakebed.arrow import scan

    flights = created(lake, {"ids": checks.unique("id")}, index=("id",))
    for start in range(100, 1_000, 100):
        flights.append([{"id": start + n, "delay": 0, "carrier": "UA"} for n in range(0, 99, 7)])
    read: list[int] = []
    original = scan.scan

    def counting(store: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        read.append(len(plan.files))
        return original(store, plan, *args, **kwargs)

    monkeypatch.setattr(scan, "scan", counting)
    # Between the bounds of every file, and in none of them.
    flights.append([{"id": 101 + 100 * n, "delay": 0, "carrier": "UA"} for n in range(9)])
    assert read == [1]  # only the new file

    read.clear()
    with pytest.raises(ChecksFailedError, match="1 row fails, such as id = 514"):
        flights.append([{"id": 514, "delay": 0, "carrier": "UA"}])
    assert read == [1, 1]


def test_key_of_a_replaced_row_is_free(lake: Repository) -> None:
    flights = created(lake, {"ids": checks.unique("id")}, partition_by="carrier")

    flights.where("carrier = 'UA'").overwrite([{"id": 1, "delay": 9, "carrier": "UA"}])
    flights.where("id = 2").delete()
    flights.append([{"id": 2, "delay": 9, "carrier": "UA"}])

    assert ids_of(flights) == [1, 2]


def test_two_writers_cannot_both_bring_a_key(lake: Repository) -> None:
    flights = created(lake, {"ids": checks.unique("id")})
    row = [{"id": 9, "delay": 0, "carrier": "UA"}]
    staged = [flights.staged.add(row) for _ in range(2)]

    staged[0].commit()
    with pytest.raises(ChecksFailedError, match="id = 9"):
        staged[1].commit()

    assert ids_of(flights) == [1, 2, 9]


def test_check_that_was_declared_after_a_batch_was_staged(lake: Repository) -> None:
    flights = created(lake, {})
    staged = flights.staged.add(BAD)
    flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)))

    with pytest.raises(ChecksFailedError, match=r"sane, .*: 2 rows fail, such as delay = -500"):
        staged.commit()

    flights.evolve(
        lambda old: old.with_check("sane", checks.condition(SANE, on_failure="quarantine"))
    )
    with pytest.raises(ChecksFailedError, match="2 rows fail"):  # its files are written
        staged.commit()
    flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE, on_failure="warn")))
    assert outcomes(staged.commit()) == {"sane": "warned"}


def test_references(lake: Repository) -> None:
    airports = lake.create("airports", DatasetDescriptor(schema=pa.schema([("code", pa.string())])))
    airports.append([{"code": "UA"}, {"code": "AA"}])
    flights = created(lake, {"known": checks.reference("carrier", "airports.code")})
    flights.append([{"id": 5, "delay": 0, "carrier": None}])

    with pytest.raises(ChecksFailedError, match=r"carrier -> airports.code\): 2 rows fail.*ZZ"):
        flights.append([{"id": n, "delay": 0, "carrier": "ZZ"} for n in range(2)])
    airports.append([{"code": "ZZ"}])
    flights.append([{"id": 6, "delay": 0, "carrier": "ZZ"}])

    lake.drop("airports")
    with pytest.raises(DatasetNotFoundError, match="refers to 'airports'"):
        flights.append([{"id": 7, "delay": 0, "carrier": "ZZ"}])


def test_volume_and_bounds_of_batches(lake: Repository) -> None:
    flights = lake.create(
        "flights",
        DatasetDescriptor(
            schema=SCHEMA,
            checks={
                "volume": checks.row_count_within(0.5, of_last=3),
                "some": checks.row_count(min=1, max=1_000),
            },
        ),
    )

    def rows(count: int) -> list[dict[str, Any]]:
        return [{"id": n, "delay": 0, "carrier": "UA"} for n in range(count)]

    flights.append(rows(100))
    flights.append(rows(150))
    flights.where("id = 3").delete()
    flights.compact()
    with pytest.raises(ChecksFailedError, match="it has 200 rows; the last 2 batches 125 each"):
        flights.append(rows(200))
    with pytest.raises(ChecksFailedError, match="some, row_count"):
        flights.append(rows(0))
    flights.append(rows(187))
    with pytest.raises(ChecksFailedError, match="it has 60 rows; the last 3 batches 146 each"):
        flights.append(rows(60))


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()])
def test_freshness(lake: Repository, kind: pa.DataType) -> None:
    flights = lake.create(
        "flights",
        DatasetDescriptor(
            schema=pa.schema([("ts", kind)]), checks={"recent": checks.fresh("ts", within="2d")}
        ),
    )
    now = dt.datetime.now(UTC)

    def table(moment: dt.datetime) -> pa.Table:
        value = moment if pa.types.is_date(kind) or kind.tz else moment.replace(tzinfo=None)
        return pa.table({"ts": pa.array([value], kind)})

    assert outcomes(flights.append(table(now - dt.timedelta(hours=5)))) == {"recent": "passed"}
    with pytest.raises(ChecksFailedError, match=r"recent, .*: the newest ts is"):
        flights.append(table(now - dt.timedelta(days=4)))


def test_adding_a_check_tests_existing_rows(lake: Repository) -> None:
    flights = created(lake, {})
    flights.append([*BAD, GOOD[0]])

    with pytest.raises(ChecksFailedError, match=r"Existing rows of 'flights' fail.*2 rows fail"):
        flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)))
    with pytest.raises(ChecksFailedError, match=r"ids, unique\(id\): 2 rows fail, such as id = 1"):
        flights.evolve(lambda old: old.with_check("ids", checks.unique("id")))
    flights.where("delay < -120").delete()
    commit = flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)))
    assert outcomes(commit) == {"sane": "passed"}
    assert flights.evolve(lambda old: old).version == commit.version

    commit = flights.evolve(lambda old: old.without_check("sane"))
    assert flights.descriptor.checks == {}
    with pytest.raises(InvalidInputError, match="There is no check 'sane'"):
        flights.evolve(lambda old: old.without_check("sane"))


def test_dry_runs_apply_checks(lake: Repository) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="quarantine")})

    would_be = flights.append(BAD, dry_run=True)
    assert (would_be.row_count, would_be.checks[0].count) == (1, 2)
    with pytest.raises(ChecksFailedError):
        flights.evolve(lambda old: old.with_check("x", checks.condition("id > 1")), dry_run=True)

    assert (flights.version, lake.list()) == (1, ["flights"])


def test_rerun_replaces_what_its_run_has_quarantined(lake: Repository) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="quarantine")})

    for _ in range(2):
        flights.rerun(BAD, run="monday", replace_all=True)
    flights.rerun(BAD[:1], run="tuesday", replace_all=True)

    rows = lake["flights_quarantine"].arrow().to_pylist()
    assert sorted(row["run"] for row in rows) == ["monday", "monday", "tuesday"]


def test_standing_of_checks_over_time(lake: Repository) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="warn")})

    def standing() -> list[str]:
        return [one.outcome for one in flights.inspect.checks()]

    assert standing() == ["passed"]
    flights.append(BAD)
    assert standing() == ["warned"]
    flights.append([{"id": 50, "delay": 1, "carrier": "UA"}])
    assert standing() == ["warned"]  # the bad rows are still there
    bad_version = flights.version - 1
    flights.rollback(version=1)
    assert standing() == ["passed"]  # the bad rows are gone
    flights.overwrite(GOOD)
    flights.rollback(version=bad_version)
    assert outcomes(flights.history()[-1]) == {"sane": "not checked"}
    assert standing() == ["not checked"]


@pytest.mark.parametrize(
    "mend",
    [
        pytest.param(lambda of: of.where("delay < -120").delete(), id="delete"),
        pytest.param(lambda of: of.where("delay < -120").update_rows({"delay": "0"}), id="update"),
        pytest.param(lambda of: of.rerun(GOOD, run="monday", replace_all=True), id="rerun"),
        pytest.param(lambda of: of.rerun([], run="monday", replace_all=True), id="empty rerun"),
        pytest.param(
            lambda of: of.upsert([{**row, "delay": 0} for row in BAD], on="id"), id="upsert"
        ),
    ],
)
def test_a_warning_ends_when_the_rows_that_failed_are_gone(
    lake: Repository, mend: Callable[[Dataset], object]
) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="warn")})
    flights.append([{"id": 90, "delay": 5, "carrier": "UA"}])
    flights.rerun(BAD, run="monday", replace_all=True)
    flights.append([{"id": 91, "delay": 5, "carrier": "UA"}])
    bad = flights.where(f"NOT ({SANE})").count()
    assert [one.outcome for one in flights.inspect.checks()] == ["warned"]

    flights.where("id = 91").delete()  # it removes no row that failed
    assert [one.outcome for one in flights.inspect.checks()] == ["warned"]
    before = flights.version
    mend(flights)

    assert bad > 0
    assert [one.outcome for one in flights.inspect.checks()] == ["passed"]
    flights.rollback(version=before)
    assert [one.outcome for one in flights.inspect.checks()] == ["not checked"]


def test_a_warning_stays_while_one_row_fails(lake: Repository) -> None:
    flights = created(
        lake,
        {
            "sane": checks.condition(SANE, on_failure="warn"),
            "named": checks.not_null("carrier", on_failure="warn"),
        },
    )
    flights.append([{"id": 1, "delay": -500, "carrier": None}])
    flights.append([{"id": 2, "delay": -500, "carrier": "UA"}])

    flights.where("id = 1").delete()
    outcomes_of = {one.name: one.outcome for one in flights.inspect.checks()}
    assert outcomes_of == {"sane": "warned", "named": "passed"}

    # The delete rewrites the only file, whose other row fails: it is no write of all rows.
    flights.overwrite(
        [{"id": 3, "delay": -500, "carrier": "UA"}, {"id": 4, "delay": 1, "carrier": None}]
    )
    flights.where("id = 4").delete()
    outcomes_of = {one.name: one.outcome for one in flights.inspect.checks()}
    assert outcomes_of == {"sane": "warned", "named": "passed"}


def test_rows_that_a_merge_leaves_as_they_are_still_fail(lake: Repository) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="warn")})
    flights.overwrite([*BAD, *GOOD])  # one file, which the merge rewrites

    flights.upsert([{"id": 12, "delay": 8, "carrier": "UA"}], on="id")

    assert flights.where(f"NOT ({SANE})").count() == 2
    assert [one.outcome for one in flights.inspect.checks()] == ["warned"]


def test_rollback_to_a_version_before_a_check(lake: Repository) -> None:
    flights = created(lake, {})
    flights.append(BAD)
    flights.overwrite(GOOD)
    flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)))

    flights.rollback(version=2)

    assert len(ids_of(flights)) == 5
    assert outcomes(flights.history()[-1]) == {"sane": "not checked"}


def test_renamed_field_keeps_its_checks(lake: Repository) -> None:
    flights = created(
        lake, {"sane": checks.condition(SANE, on_failure="warn"), "ids": checks.unique("id")}
    )
    flights.append(BAD)

    flights.evolve(lambda old: old.rename_field("delay", "late").rename_field("id", "number"))

    assert str(flights.descriptor.checks["sane"]) == "condition('late >= -120 OR late IS NULL')"
    assert str(flights.descriptor.checks["ids"]) == "unique(number)"
    assert [one.outcome for one in flights.inspect.checks()] == ["warned", "passed"]
    with pytest.raises(ChecksFailedError, match="number = 1"):
        flights.append([{"number": 1, "late": 0, "carrier": "UA"}])
    with pytest.raises(SchemaMismatchError, match="A check names an unknown column: 'number'"):
        flights.evolve(
            lambda old: DatasetDescriptor(
                schema=old.schema.select(("late", "carrier")), checks=old.checks
            )
        )


def test_rollback_to_a_renamed_field_brings_its_failing_rows_back(lake: Repository) -> None:
    flights = created(lake, {"sane": checks.condition(SANE, on_failure="warn")})
    flights.append(BAD)
    renamed = flights.evolve(lambda old: old.rename_field("delay", "late"))
    flights.overwrite([{"id": 9, "late": 0, "carrier": "UA"}])
    assert [one.outcome for one in flights.inspect.checks()] == ["passed"]

    flights.rollback(version=renamed.version)

    assert [one.outcome for one in flights.inspect.checks()] == ["not checked"]


def test_publication_requires_checks(lake: Repository) -> None:
    flights = created(
        lake,
        {"sane": checks.condition(SANE, on_failure="warn")},
        properties={"publish.delta": "true", "publish.require_checks": "true"},
    )
    (shown,) = flights.inspect.publications()
    assert shown.version == 1

    commit = flights.append(BAD)

    (failure,) = commit.not_published
    assert "rows may fail the declared checks sane (warned)" in failure.reason
    with pytest.raises(InvalidInputError, match="Version 2 of 'flights' is not published"):
        flights.publish("delta")
    (shown,) = flights.inspect.publications()
    assert shown.version == 1
    flights.overwrite(GOOD)
    (shown,) = flights.inspect.publications()
    assert shown.version == 3


def test_head_without_checks_is_for_earlier_releases(lake: Repository) -> None:
    def version_of_format() -> str:
        head = json.loads(lake.store.get("flights.by-dataset-metadata.json").data)
        return str(head["metadata"]["lakebed.format_version"])

    flights = created(lake, {})
    assert version_of_format() == "1"
    flights.evolve(lambda old: old.with_check("sane", checks.condition(SANE)))
    assert version_of_format() == "5"
    flights.evolve(lambda old: old.without_check("sane"))
    assert version_of_format() == "1"


def without_checksum(head: bytes) -> bytes:
    """Return a head as another writer makes it, whose entries are not compared."""
    return re.sub(rb',"lakebed.checksum":"[^"]*"', b"", head)


def test_damaged_check_is_refused(lake: Repository) -> None:
    created(lake, {"sane": checks.condition(SANE)})
    store, key = lake.store, "flights.by-dataset-metadata.json"
    head = store.get(key)
    damaged = without_checksum(head.data).replace(b"rows", b"sows")
    assert damaged != head.data
    store.replace(key, damaged, if_match=head.etag)

    with pytest.raises(CorruptMetadataError, match="Check 'sane' has none of the keys"):
        lakebed.open_repository(lake.uri)["flights"].count()


def test_stored_condition_that_does_not_parse_is_refused_at_the_next_write(
    lake: Repository,
) -> None:
    flights: Dataset = created(lake, {"sane": checks.condition("delay >= 0 OR delay IS NULL")})
    store, key = lake.store, "flights.by-dataset-metadata.json"
    head = store.get(key)
    damaged = without_checksum(head.data).replace(b"delay >= 0", b"delay >>=)")
    assert damaged != head.data
    store.replace(key, damaged, if_match=head.etag)

    again = lakebed.open_repository(lake.uri)["flights"]
    assert again.count() == 2
    with pytest.raises(lakebed.errors.PredicateError, match="cannot be used"):
        again.append(GOOD)
    assert flights.count() == 2


KEYS = [
    (pa.float64(), [float("nan"), 0.0], [float("nan"), -0.0], [1.5, float("inf")]),
    (pa.float32(), [0.5], [0.5], [0.25]),
    (pa.decimal128(6, 2), [Decimal("1.50"), None], [Decimal("1.50"), None], [Decimal("1.51")]),
    (pa.timestamp("us", tz="UTC"), [dt.datetime(2013, 1, 1, tzinfo=UTC)], None, None),
    (pa.timestamp("us"), [dt.datetime(2013, 1, 1, 5)], None, None),
    (pa.date32(), [dt.date(2013, 1, 1)], None, [dt.date(2013, 1, 2)]),
    (pa.binary(), [b"\x00\xff"], None, [b"\x00"]),
    (pa.string(), ["", "a'b"], None, ["b"]),
    (pa.bool_(), [True], None, [False]),
    (pa.uint64(), [2**64 - 1], None, [0]),
]


@pytest.mark.parametrize(("kind", "known", "again", "new"), KEYS, ids=[str(key[0]) for key in KEYS])
def test_keys_of_all_types(
    lake: Repository, kind: pa.DataType, known: list[Any], again: Any, new: Any
) -> None:
    descriptor = DatasetDescriptor(
        schema=pa.schema([("k", kind)]), checks={"ids": checks.unique("k")}
    )
    things = lake.create("things", descriptor)
    things.append(pa.table({"k": pa.array(known, kind)}))

    for value in again or known:
        with pytest.raises(ChecksFailedError, match="1 row fails"):
            things.append(pa.table({"k": pa.array([value], kind)}))
    if new is not None:
        things.append(pa.table({"k": pa.array(new, kind)}))


def test_many_keys_are_searched_for_by_their_bounds(lake: Repository, monkeypatch: Any) -> None:
    monkeypatch.setattr("lakebed.work.judging.MOST_VALUES", 3)
    flights = created(lake, {"ids": checks.unique("id")}, index=("id",))

    def rows(*ids: int) -> list[dict[str, Any]]:
        return [{"id": number, "delay": 0, "carrier": "UA"} for number in ids]

    flights.append(rows(10, 20, 30, 40, 50))
    flights.append(rows(11, 21, 31, 41, 51))
    with pytest.raises(ChecksFailedError, match="2 rows fail, such as id = 20; id = 31"):
        flights.append(rows(12, 20, 22, 31, 32))

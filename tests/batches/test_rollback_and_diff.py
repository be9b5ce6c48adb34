"""Going back to an older state, and what lies between two of them."""

import collections
import datetime as dt
import math
import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Dataset, DatasetDescriptor, Diff, Repository, by
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    """Version 1 has a1 b1, version 2 a2 b1, version 3 a2 b1 c3."""
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    dataset = Repository(store).create("d", descriptor)
    dataset.append(rows(("a", 1), ("b", 1)))
    dataset.overwrite(rows(("a", 2)))
    dataset.append(rows(("c", 3)))
    return dataset


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: Dataset) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in dataset.arrow().to_pylist())


# Rollback


def test_rollback_makes_an_old_state_current_as_a_new_commit(dataset: Dataset) -> None:
    commit = dataset.rollback(version=1)

    assert commit is not None
    assert (commit.version, commit.operation, commit.batch_id) == (4, "rollback", None)
    assert (commit.row_count, commit.partitions) == (1, ("p=a", "p=c"))
    assert content(dataset) == [("a", 1), ("b", 1)]
    assert content(dataset.at(version=3)) == [("a", 2), ("b", 1), ("c", 3)]
    dataset.rollback(version=3)
    assert content(dataset) == [("a", 2), ("b", 1), ("c", 3)]


def test_rollback_goes_by_time_and_by_batch_too(dataset: Dataset) -> None:
    first = dataset.history()[1]

    dataset.rollback(batch_id=first.batch_id)
    assert content(dataset) == [("a", 1), ("b", 1)]

    dataset.rollback(version=3)
    dataset.rollback(time=first.committed_at)
    assert content(dataset) == [("a", 1), ("b", 1)]


def test_rollback_of_a_view_leaves_the_other_partitions(dataset: Dataset) -> None:
    dataset.rollback(version=1, view=dataset.where("p = 'a'"))

    assert content(dataset) == [("a", 1), ("b", 1), ("c", 3)]
    with pytest.raises(PredicateError, match="not aligned"):
        dataset.rollback(version=1, view=dataset.where("n = 1"))


def test_rollback_that_changes_nothing_makes_no_version(dataset: Dataset) -> None:
    assert dataset.rollback(version=3) is None
    assert dataset.rollback(version=1, view=dataset.where("p = 'b'")) is None
    assert dataset.version == 3


def test_rollback_keeps_what_the_dataset_is_now(dataset: Dataset) -> None:
    schema = pa.schema([*SCHEMA, ("more", pa.string())])
    dataset.evolve(
        DatasetDescriptor(
            schema=schema, partition_by=[by.identity("p")], properties={"owner": "ops"}
        ),
        base=dataset.version,
    )

    dataset.rollback(version=1)

    assert dataset.descriptor.properties == {"owner": "ops"}
    assert dataset.where("p = 'a'").arrow().to_pylist() == [{"p": "a", "n": 1, "more": None}]
    assert len(dataset.inspect.schemas()) == 2


def test_rollback_is_refused_where_a_file_is_gone(dataset: Dataset, store: Store) -> None:
    (lost,) = (one.key for one in dataset.at(version=1).files() if one.partition == "p=a")
    store.delete([lost])

    with pytest.raises(VersionNotFoundError, match=r"1 data file is missing.*" + lost):
        dataset.rollback(version=1)

    assert dataset.version == 3


def test_rollback_is_refused_to_what_a_cleanup_gave_up(dataset: Dataset) -> None:
    dataset.protections.add(version=1, reason="audit")
    dataset.overwrite(rows(("a", 4)))
    dataset.cleanup(older_than="0s", dry_run=False, clock_skew=dt.timedelta())

    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        dataset.rollback(version=3)

    dataset.rollback(version=1)  # which is protected
    assert content(dataset) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("given", [{}, {"version": 1, "batch_id": 1}])
def test_rollback_needs_one_target(dataset: Dataset, given: Any) -> None:
    with pytest.raises(InvalidInputError, match="Give one"):
        dataset.rollback(**given)


def test_rollback_to_what_never_was_is_refused(dataset: Dataset) -> None:
    with pytest.raises(VersionNotFoundError):
        dataset.rollback(version=99)
    with pytest.raises(VersionNotFoundError):
        dataset.rollback(batch_id=99)
    with pytest.raises(ReadOnlyError):
        dataset.at(version=1).rollback(version=0)


class _Interfering(DelegatingStore):
    def __init__(self, inner: Store, interfere: Any) -> None:
        super().__init__(inner)
        self._interfere = interfere

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        interfere, self._interfere = self._interfere, None
        if interfere is not None:
            interfere()
        return super()._replace(key, data, if_match=if_match)


@pytest.mark.parametrize(("partition", "is_conflict"), [("a", True), ("b", False)])
def test_rollback_conflicts_with_changes_of_what_it_changes(
    dataset: Dataset, store: Store, partition: str, is_conflict: bool
) -> None:
    late = _Interfering(store, lambda: dataset.append(rows((partition, 9))))
    other = Repository(late).open("d")

    if is_conflict:
        with pytest.raises(CommitConflictError):
            other.rollback(version=1)
        assert (partition, 9) in content(dataset)
        assert ("a", 2) in content(dataset)
    else:
        other.rollback(version=1)
        assert content(dataset) == [("a", 1), ("b", 1), ("b", 9)]


def test_dry_run_says_what_would_change_and_changes_nothing(dataset: Dataset) -> None:
    found = dataset.rollback(version=1, dry_run=True)

    assert (len(found.added), len(found.removed), found.row_count) == (1, 2, 1)
    assert found.partitions == ("p=a", "p=c")
    assert dataset.version == 3


# Diff


def test_diff_tells_partitions_files_and_rows(dataset: Dataset) -> None:
    diff = dataset.diff(1, 3)

    assert (diff.from_version, diff.to_version) == (1, 3)
    assert (diff.rows_added, diff.rows_removed) == (2, 1)
    assert (len(diff.files_added), len(diff.files_removed)) == (2, 1)
    told = [(one.path, one.rows_added, one.rows_removed) for one in diff.partitions]
    assert told == [("p=a", 1, 1), ("p=c", 1, 0)]
    assert not diff.is_empty
    assert dataset.diff(2, 2).is_empty
    assert dataset.diff(2, 2).rows().num_rows == 0


def test_diff_takes_versions_batches_and_their_values(dataset: Dataset) -> None:
    batches, commits = dataset.batches(), dataset.history()
    wanted = dataset.diff(1, 2)

    for a, b in [
        (batches[0].batch_id, batches[1].batch_id),
        (batches[0], batches[1]),
        (commits[1], commits[2]),
        (dataset.at(version=1), dataset.at(version=2)),
    ]:
        assert dataset.diff(a, b) == wanted
    assert dataset.diff(1) == dataset.diff(1, 3)
    back = dataset.diff(2, 1)
    assert (back.files_added, back.files_removed) == (wanted.files_removed, wanted.files_added)


def test_diff_refuses_what_is_no_version_of_the_dataset(dataset: Dataset) -> None:
    with pytest.raises(VersionNotFoundError):
        dataset.diff(1, 99)
    with pytest.raises(VersionNotFoundError, match="batch"):
        dataset.diff(1, 10**12)
    with pytest.raises(InvalidInputError, match="not a version"):
        dataset.diff(1, "two")  # type: ignore[arg-type]
    other = Repository(MemoryStore(uuid.uuid4().hex)).create("d", dataset.descriptor)
    with pytest.raises(InvalidInputError, match="not a view of"):
        dataset.diff(1, other)


def test_rows_that_were_only_written_anew_cancel_out(dataset: Dataset) -> None:
    dataset.overwrite(rows(("a", 2), ("a", 2), ("a", 5)))

    diff = dataset.diff(3, 4)

    assert (diff.rows_added, diff.rows_removed) == (3, 1)
    assert diff.rows().to_pylist() == [
        {"operation": "added", "p": "a", "n": 2},
        {"operation": "added", "p": "a", "n": 5},
    ]
    assert diff.rows(["p"]).to_pylist() == [{"operation": "added", "p": "a"}] * 2
    assert "batch_id" in diff.rows(["n", "batch_id"]).column_names
    assert diff.rows(["n", "batch_id"]).num_rows == 4
    with pytest.raises(SchemaMismatchError):
        diff.rows(["nothing"])


WIDE = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("list", pa.list_(pa.int64())),
        ("spot", pa.struct([("y", pa.string())])),
    ]
)
WIDE_ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 1),
        "x": st.none() | st.sampled_from([0.0, 1.5, math.nan]),
        "s": st.none() | st.sampled_from(["", "a"]),
        "at": st.none() | st.just(dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        "list": st.none() | st.sampled_from([[], [1], [None]]),
        "spot": st.none() | st.sampled_from([{"y": None}, {"y": "a"}]),
    }
)


def counted(table: pa.Table) -> collections.Counter[str]:
    return collections.Counter(map(repr, table.to_pylist()))


@given(one=st.lists(WIDE_ROWS, max_size=6), other=st.lists(WIDE_ROWS, max_size=6))
def test_rows_are_the_difference_of_multisets(one: list[Any], other: list[Any]) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    wide = Repository(store).create("w", DatasetDescriptor(schema=WIDE))
    wide.append(one)
    wide.overwrite(other, wide)

    rows = wide.diff(1, 2).rows()

    before, after = counted(wide.at(version=1).arrow()), counted(wide.arrow())
    operations = rows["operation"].to_pylist()
    plain = rows.drop_columns(["operation"])
    found = {
        word: counted(plain.filter(pa.array([one == word for one in operations], pa.bool_())))
        for word in ("added", "removed")
    }
    assert found == {"added": after - before, "removed": before - after}


def test_both_sides_are_read_under_the_newer_schema(dataset: Dataset) -> None:
    schema = pa.schema([("p", pa.string()), ("n", pa.int64()), ("more", pa.string())])
    dataset.evolve(
        DatasetDescriptor(schema=schema, partition_by=[by.identity("p")]), base=dataset.version
    )
    dataset.overwrite([{"p": "a", "n": 2, "more": None}, {"p": "a", "n": 3, "more": "x"}])

    assert dataset.diff(3, 5).rows().to_pylist() == [
        {"operation": "added", "p": "a", "n": 3, "more": "x"}
    ]
    assert dataset.diff(5, 3).rows().to_pylist() == [
        {"operation": "removed", "p": "a", "n": 3, "more": "x"}
    ]


def test_column_of_the_name_of_the_result_is_left_out_first(store: Store) -> None:
    schema = pa.schema([("operation", pa.string()), ("n", pa.int64())])
    dataset = Repository(store).create("o", DatasetDescriptor(schema=schema))
    dataset.append([{"operation": "x", "n": 1}])

    with pytest.raises(InvalidInputError, match="columns="):
        dataset.diff(0, 1).rows()
    with pytest.raises(InvalidInputError, match="columns="):
        dataset.diff(0, 1).spark()
    assert dataset.diff(0, 1).rows(["n"]).num_rows == 1


def test_diff_and_batch_show_themselves(dataset: Dataset) -> None:
    diff = dataset.diff(1, 3)._repr_html_()
    assert "<th>versions</th><td>1 to 3</td>" in diff
    assert "p=a, p=c" in diff
    batch = dataset.batches()[0]._repr_html_()
    assert "<th>operation</th><td>append</td>" in batch


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_finds_the_same_rows(dataset: Dataset, spark: Any) -> None:
    dataset.overwrite(rows(("a", 2), ("a", 2), ("a", 5)))
    diff: Diff = dataset.diff(1, 4)

    frame = diff.spark(spark)

    assert frame.columns == ["operation", "p", "n"]
    found = sorted(tuple(row) for row in frame.collect())
    assert found == sorted(tuple(row.values()) for row in diff.rows().to_pylist())


@pytest.mark.spark
def test_maps_are_no_keys_of_spark(store: Store, spark: Any) -> None:
    of_map = pa.map_(pa.string(), pa.int64())
    held = {"s": pa.struct([("in", pa.list_(of_map))]), "l": pa.list_(of_map)}
    schema = pa.schema([("m", of_map), *held.items(), ("n", pa.int64())])
    dataset = Repository(store).create("m", DatasetDescriptor(schema=schema))
    dataset.append([{"m": {"a": 1}, "s": {"in": [{"a": 1}]}, "l": [], "n": 1}])

    with pytest.raises(InvalidInputError, match="'m', which is a map"):
        dataset.diff(0, 1).spark(spark)
    for name in held:
        with pytest.raises(InvalidInputError, match=f"'{name}', which holds a map"):
            dataset.diff(0, 1).spark(spark, ["n", name])
    assert dataset.diff(0, 1).spark(spark, ["n"]).count() == 1
    assert dataset.diff(0, 1).rows().num_rows == 1


def test_diff_takes_the_two_zeros_and_all_nans_within_records_for_equal(store: Store) -> None:
    inner = pa.struct([("v", pa.float64()), ("text", pa.string())])
    types = {
        "record": inner,
        "list": pa.list_(pa.float32()),
        "map": pa.map_(pa.string(), pa.float64()),
        "deep": pa.list_(inner),
    }
    nested = Repository(store).create(
        "nested",
        DatasetDescriptor(schema=pa.schema(list(types.items()))),
    )

    def row(value: float, text: str = "-0.0") -> dict[str, Any]:
        record = {"v": value, "text": text}
        return {"record": record, "list": [value], "map": {"k": value}, "deep": [record]}

    nested.append([row(0.0), row(math.nan), row(1.0)])
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    nested.overwrite([row(-0.0), row(other_nan), row(1.0)])

    assert nested.diff(1, 2).rows().num_rows == 0
    nested.overwrite([row(-0.0, "0.0"), row(math.nan), row(1.5)])
    assert nested.diff(2, 3).rows().num_rows == 4

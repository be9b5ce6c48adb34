"""The rows that commits inserted, deleted and updated: a batch change feed."""

import datetime as dt
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository
from lakebed.arrow import row_changes
from lakebed.batches.changes import Changes
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakebed.store.memory import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.float64())])


@pytest.fixture
def dataset() -> Dataset:
    return make()


def make(schema: pa.Schema = SCHEMA, **others: Any) -> Dataset:
    repository = Repository(MemoryStore(uuid.uuid4().hex))
    return repository.create("d", DatasetDescriptor(schema=schema, **others))


def row(number: int, v: float | None = 0.0, p: str = "a") -> dict[str, Any]:
    return {"id": number, "p": p, "v": v}


def short(changes: Changes, *names: str) -> list[tuple[Any, ...]]:
    """Return the changes as tuples: version, change, then some fields; sorted."""
    rows = changes.arrow().to_pylist()
    wanted = names or ("id", "v")
    return sorted(
        (one["_version"], one["_change"], *(one[name] for name in wanted)) for one in rows
    )


def test_each_commit_shows_what_it_changed(dataset: Dataset) -> None:
    dataset.append([row(1), row(2), row(3)])
    dataset.upsert([row(2, 5.0), row(4)], on="id")
    dataset.where("id = 1").delete()
    commit = dataset.where("id = 3").update_rows({"v": "v + 1"})
    assert commit is not None

    changes = dataset.changes(0, on="id")

    assert short(changes) == [
        (1, "insert", 1, 0.0),
        (1, "insert", 2, 0.0),
        (1, "insert", 3, 0.0),
        (2, "insert", 4, 0.0),
        (2, "update_after", 2, 5.0),
        (2, "update_before", 2, 0.0),
        (3, "delete", 1, 0.0),
        (4, "update_after", 3, 1.0),
        (4, "update_before", 3, 0.0),
    ]
    assert changes.schema.names == ["id", "p", "v", "_change", "_version", "_committed_at"]
    table = changes.arrow()
    assert table.schema == changes.schema
    assert table["_version"].to_pylist() == sorted(table["_version"].to_pylist())
    assert table["_committed_at"].to_pylist()[-1] == commit.committed_at
    assert repr(changes) == "<Changes of 'd', version 0 to 4: 4 commits>"


def test_without_a_key_an_update_is_a_delete_and_an_insert(dataset: Dataset) -> None:
    dataset.append([row(1), row(2)])
    dataset.where("id = 2").update_rows({"v": 7})

    assert short(dataset.changes(1)) == [(2, "delete", 2, 0.0), (2, "insert", 2, 7.0)]


def test_rows_that_only_moved_are_no_changes(dataset: Dataset) -> None:
    for number in range(4):
        dataset.append([row(number)])
    version = dataset.version
    dataset.compact()
    assert dataset.version == version + 1
    dataset.overwrite(dataset.arrow())
    dataset.rerun([row(9)], run="nine", replace_all=True)
    dataset.rerun([row(9)], run="nine", replace_all=True)

    assert short(dataset.changes(version)) == [(version + 3, "insert", 9, 0.0)]
    assert dataset.changes(version).commit_count == 3  # a compaction is not even read


def test_a_row_that_moves_to_another_partition_is_an_update() -> None:
    dataset = make(partition_by="p")
    dataset.append([row(1), row(2)])
    dataset.where("id = 1").update_rows({"p": "'b'"})

    assert short(dataset.changes(1, on="id"), "p") == [
        (2, "update_after", "b"),
        (2, "update_before", "a"),
    ]


def test_equal_rows_cancel_each_other_one_for_one(dataset: Dataset) -> None:
    dataset.append([row(1)] * 3 + [row(2)])
    dataset.overwrite([row(1)] * 5 + [row(3)])
    dataset.overwrite([row(1)] * 2 + [row(3)])

    assert short(dataset.changes(1, 2)) == [
        (2, "delete", 2, 0.0),
        (2, "insert", 1, 0.0),
        (2, "insert", 1, 0.0),
        (2, "insert", 3, 0.0),
    ]
    assert short(dataset.changes(2)) == [(3, "delete", 1, 0.0)] * 3


def test_null_in_a_key_equals_nothing_and_a_double_key_pairs_one_by_one(dataset: Dataset) -> None:
    dataset.append([{"id": None, "p": "a", "v": 1.0}, row(1, 1.0), row(1, 2.0), row(1, 3.0)])
    dataset.overwrite([{"id": None, "p": "a", "v": 2.0}, row(1, 7.0)])

    words = Counter(dataset.changes(1, on="id").arrow()["_change"].to_pylist())

    assert words == {"update_before": 1, "update_after": 1, "delete": 3, "insert": 1}
    nulls = dataset.changes(1, on="id").arrow().filter(pa.compute.field("id").is_null())
    assert sorted(nulls["_change"].to_pylist()) == ["delete", "insert"]


def test_net_changes_compare_the_two_versions_alone(dataset: Dataset) -> None:
    dataset.append([row(1)])
    dataset.append([row(2)])
    dataset.where("id = 2").delete()
    dataset.upsert([row(1, 1.0)], on="id")
    dataset.upsert([row(1, 2.0)], on="id")

    changes = dataset.changes(1, on="id", net=True)

    assert short(changes) == [(5, "update_after", 1, 2.0), (5, "update_before", 1, 0.0)]
    assert dataset.changes(2, 3, net=True).arrow().num_rows == 1
    assert short(dataset.changes(1, 1, net=True)) == short(dataset.changes(5)) == []


def test_rows_are_compared_by_the_chosen_columns(dataset: Dataset) -> None:
    dataset.append([row(1), row(2)])
    dataset.upsert([row(1, 4.0), row(3)], on="id")

    changes = dataset.changes(1, columns=["id"])

    assert changes.arrow().drop_columns(["_committed_at"]).to_pylist() == [
        {"id": 3, "_change": "insert", "_version": 2}
    ]


def test_older_files_are_read_with_the_last_schema(dataset: Dataset) -> None:
    dataset.append([row(1)])
    dataset.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=pa.schema([*SCHEMA, pa.field("w", pa.string())]), format=old.format
        )
    )
    dataset.upsert([{"id": 1, "p": "a", "v": 0.0, "w": "x"}], on="id")

    assert short(dataset.changes(0, on="id"), "w") == [
        (1, "insert", None),
        (3, "update_after", "x"),
        (3, "update_before", None),
    ]
    assert short(dataset.changes(0, 1)) == [(1, "insert", 1, 0.0)]
    assert "w" not in dataset.changes(0, 1).schema.names


@pytest.mark.parametrize(
    ("arguments", "others", "error", "message"),
    [
        ((2, 1), {}, InvalidInputError, "Version 1 comes before version 2"),
        ((9,), {}, VersionNotFoundError, "no version 9"),
        ((0, 9), {}, VersionNotFoundError, "no version 9"),
        ((-1,), {}, LakebedError, "-1"),
        (("1",), {}, InvalidInputError, "'1' is not a version"),
        ((0,), {"on": "ID"}, SchemaMismatchError, "Did you mean 'id'?"),
        ((0,), {"on": ["id", "id"]}, InvalidInputError, "twice"),
        ((0,), {"columns": ["w"]}, SchemaMismatchError, "'w'"),
        ((0,), {"columns": ["batch_id"]}, InvalidInputError, "it locates a row"),
        ((0,), {"columns": []}, LakebedError, ""),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    dataset: Dataset,
    arguments: tuple[Any, ...],
    others: dict[str, Any],
    error: type[LakebedError],
    message: str,
) -> None:
    dataset.append([row(1)])
    dataset.append([row(2)])

    with pytest.raises(error) as caught:
        dataset.changes(*arguments, **others)

    assert message in f"{caught.value} {caught.value.hint}"


def test_columns_of_the_dataset_with_names_of_the_feed_are_refused() -> None:
    dataset = make(pa.schema([("id", pa.int64()), ("_change", pa.string())]))
    dataset.append([{"id": 1}])

    with pytest.raises(InvalidInputError, match="_change"):
        dataset.changes(0)
    assert dataset.changes(0, columns=["id"]).arrow().num_rows == 1


def test_a_staged_batch_has_changed_nothing_yet(dataset: Dataset) -> None:
    dataset.append([row(1)])
    staged = dataset.staged.add([row(2)])

    with pytest.raises(InvalidInputError, match="staged"):
        dataset.changes(1, staged.dataset)


def test_what_a_cleanup_took_is_named_and_net_does_without_it(dataset: Dataset) -> None:
    dataset.append([row(1)])
    dataset.protections.add(version=1, reason="audit")
    dataset.overwrite([row(2)])
    dataset.overwrite([row(3)])
    dataset.overwrite([row(4)])
    dataset.cleanup("0s", dry_run=False, clock_skew=dt.timedelta(0))

    with pytest.raises(VersionNotFoundError, match="Version 2 of 'd' was cleaned up") as caught:
        dataset.changes(1)
    assert "net=True" in str(caught.value.hint)
    with pytest.raises(VersionNotFoundError, match="Version 2 of 'd' was cleaned up"):
        dataset.changes(2)

    assert short(dataset.changes(1, net=True)) == [
        (dataset.version, "delete", 1, 0.0),
        (dataset.version, "insert", 4, 0.0),
    ]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    dataset = repository.create("d", DatasetDescriptor(schema=SCHEMA))
    commit = dataset.append([row(1)])
    changes = dataset.changes(0)
    (tmp_path / commit.files_added[0]).unlink()

    with pytest.raises(CorruptMetadataError, match="missing"):
        changes.arrow()


def test_other_libraries_read_the_changes(dataset: Dataset) -> None:
    dataset.append([row(1)])
    dataset.upsert([row(1, 2.0)], on="id")
    changes = dataset.changes(1, on="id")

    assert changes.pandas()["_change"].tolist() == ["update_before", "update_after"]
    assert changes.polars()["v"].to_list() == [0.0, 2.0]
    assert polars.DataFrame(changes).height == 2
    assert sum(batch.num_rows for batch in changes.record_batches()) == 2
    assert "1 to 2" in changes._repr_html_()


def as_rows(view: lakebed.View) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(one.values()) for one in view.arrow().to_pylist())


def play(seed: int, dataset: Dataset) -> None:
    rng = random.Random(seed)

    def some(count: int) -> list[dict[str, Any]]:
        ids = rng.sample(range(40), count)
        return [row(n, rng.choice([None, 0.0, 1.5]), rng.choice("abc")) for n in ids]

    for _ in range(8):
        match rng.randrange(8):
            case 0 | 1:
                dataset.append(some(5), run=rng.choice([None, "r"]))
            case 2:
                dataset.upsert(some(6), on="id")
            case 3:
                dataset.where(f"id < {rng.randrange(20)}").delete()
            case 4:
                dataset.where(f"id > {rng.randrange(40)}").update_rows({"v": "v + 1", "p": "'c'"})
            case 5:
                dataset.compact()
            case 6:
                dataset.rerun(some(4), run="r", replace_all=True)
            case 7 if dataset.version:
                dataset.rollback(version=rng.randrange(dataset.version))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limits", [None, (5, 2**28), (5, 1)], ids=["whole", "buckets", "again"])
def test_changes_lead_from_each_version_to_the_next(
    seed: int, limits: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limits is not None:
        monkeypatch.setattr(row_changes, "HELD_ROWS", limits[0])
        monkeypatch.setattr(row_changes, "HELD_BYTES", limits[1])
    dataset = make(partition_by="p" if seed % 2 else None)
    play(seed, dataset)

    for on in (None, "id"):
        table = dataset.changes(0, on=on).arrow()
        for version in range(1, dataset.version + 1):
            rows = [one for one in table.to_pylist() if one["_version"] == version]
            check(
                rows, as_rows(dataset.at(version=version - 1)), as_rows(dataset.at(version=version))
            )
        net = dataset.changes(0, on=on, net=True).arrow().to_pylist()
        check(net, Counter(), as_rows(dataset))


def check(
    rows: Sequence[dict[str, Any]],
    before: Counter[tuple[Any, ...]],
    after: Counter[tuple[Any, ...]],
) -> None:
    def of(*words: str) -> Counter[tuple[Any, ...]]:
        return Counter((one["id"], one["p"], one["v"]) for one in rows if one["_change"] in words)

    # No row is on both sides: nothing is a change that is not one.
    assert of("delete", "update_before") == before - after
    assert of("insert", "update_after") == after - before
    keys = [
        Counter(key for key, _, _ in of(word).elements())
        for word in ("update_before", "update_after")
    ]
    assert keys[0] == keys[1]
    if keys[0]:
        left = Counter(key for key, _, _ in of("delete").elements())
        came = Counter(key for key, _, _ in of("insert").elements())
        assert not left & came


def test_changes_are_iterated_row_by_row(dataset: Dataset) -> None:
    dataset.append([row(1), row(2)])
    dataset.where("id = 2").update_rows({"v": "v + 1"})

    changes = dataset.changes(0, on="id")

    assert list(changes) == changes.arrow().to_pylist()
    assert [(one["id"], one["_change"]) for one in changes][-2:] == [
        (2, "update_before"),
        (2, "update_after"),
    ]

"""A dataset whose head is a tree, published: its tables are those of one with a document."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import cases
from inside import state_of, store_of
from pyiceberg.table import StaticTable
from state.test_tree_commits import ACTS, DAYS, OFTEN, described, made, rows
from table_doors import (
    DELTA,
    ICEBERG,
    assert_shows,
    by_deltalake,
    by_polars,
    by_pyiceberg,
    rows_of,
)
from tree_copies import shrink
from upkeep_lake import age, sweep

import lakebed
from lakebed import Dataset
from lakebed.errors import InvalidInputError
from lakebed.model.publishing import CHECKPOINTS
from lakebed.state.tree import stored_folds
from lakebed.state.tree.find import StoredLeaves
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Ref, Root
from lakebed.store.cache import PROCESS_CACHE
from lakebed.tables import erased_tables
from lakebed.tables.delta import to_delta
from lakebed.testing import CountingStore, FailingStore


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def home(dataset: Dataset) -> Path:
    return Path(dataset.uri.removeprefix("file://"))


def shown(dataset: Dataset, table: pa.Table) -> list[str]:
    names = [name for name in dataset.arrow().schema.names if name in table.column_names]
    return rows_of(table, names)


@pytest.mark.parametrize("seed", range(cases(4)))
def test_a_random_history_gives_the_tables_of_a_document(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_delta, "COMMITS_A_CHECKPOINT", 3)
    rng = random.Random(seed)
    lakes = [lakebed.open_repository(tmp_path / name) for name in ("document", "tree")]
    document, tree = (
        lake.create("d", described(), head=head)
        for lake, head in zip(lakes, ("document", "tree"), strict=True)
    )
    done = []
    for _ in range(14):
        name = rng.choice([*ACTS, *OFTEN])
        number = rng.random()
        done.append(name)
        for dataset in (document, tree):
            made(ACTS[name], dataset, number)
        if rng.random() < 0.3:
            tree.compact(metadata=True)
        if rng.random() < 0.6:
            continue
        for dataset in (document, tree):
            for door in (DELTA, ICEBERG):
                door.publish(dataset)
        of_both = [
            (
                shown(dataset, by_deltalake(home(dataset))),
                shown(dataset, by_pyiceberg(home(dataset))),
            )
            for dataset in (document, tree)
        ]
        assert of_both[0] == of_both[1], done
        assert of_both[1][0] == shown(tree, tree.arrow()), done
        for door in (DELTA, ICEBERG):
            assert door.publish(tree, check=True).was_in_step, done


# Checkpoints by leaf


def grown(root: Path, count: int = 9, **properties: str) -> Dataset:
    """Return a dataset of a tree of several leaves, published after each commit."""
    plain = described()
    descriptor = replace(plain, properties={**plain.properties, **properties})
    dataset = lakebed.open_repository(root).create("d", descriptor, head="tree")
    rng = random.Random(1)
    dataset.publish("delta")
    for _ in range(count):
        ACTS["append much"](dataset, rng)
        dataset.publish("delta")
    return dataset


@pytest.fixture
def _each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a checkpoint due after each commit."""
    monkeypatch.setattr(to_delta, "COMMITS_A_CHECKPOINT", 1)


def log_of(dataset: Dataset) -> Path:
    return home(dataset) / DELTA.folder


def named_by(dataset: Dataset) -> list[str]:
    """Return the sidecars that the last checkpoint names."""
    last = max(log_of(dataset).glob("*.checkpoint.parquet"))
    rows = pq.read_table(last).column("sidecar").to_pylist()
    return [row["path"] for row in rows if row is not None]


def sidecars_of(dataset: Dataset) -> set[str]:
    return {path.name for path in (log_of(dataset) / "_sidecars").iterdir()}


@pytest.mark.usefixtures("_each")
def test_checkpoint_writes_the_sidecars_of_leaves_that_changed(tmp_path: Path) -> None:
    dataset = grown(tmp_path)
    before, had = named_by(dataset), sidecars_of(dataset)
    root = root_of(dataset)
    assert len(before) == len(root.refs) + bool(root.held) > 5

    dataset.where(f"day = '{DAYS[0]}'").delete()
    dataset.publish("delta")

    named, changed = set(named_by(dataset)), root_of(dataset)
    touched = {leaf for leaf in changed.gone if changed.gone[leaf] != root.gone.get(leaf)}
    kept = {ref.id for ref in changed.refs} & {ref.id for ref in root.refs} - touched
    assert len(named & set(before)) == len(kept) > 2
    assert sidecars_of(dataset) - had == named - set(before)
    for commit in sorted(log_of(dataset).glob("*.json"))[:-1]:
        commit.unlink()  # readers begin with the checkpoint now
    assert shown(dataset, by_deltalake(home(dataset))) == shown(dataset, dataset.arrow())


def root_of(dataset: Dataset) -> Root:
    live = state_of(dataset).live
    assert isinstance(live, TreeFiles)
    return live.root


@pytest.mark.usefixtures("_each")
def test_cleanup_keeps_the_sidecars_that_checkpoints_name(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 4)
    dataset.delete(dataset.where("id < 30"))
    dataset.publish("delta")
    age(tmp_path, days=1)

    sweep(dataset)

    assert sidecars_of(dataset) == set(named_by(dataset))
    assert shown(dataset, by_deltalake(home(dataset))) == shown(dataset, dataset.arrow())
    assert dataset.publish("delta", check=True).damaged == ()


@pytest.mark.usefixtures("_each")
def test_lost_sidecar_is_found_by_a_check_and_a_repair_begins_the_log_again(
    tmp_path: Path,
) -> None:
    dataset = grown(tmp_path, 4)
    (log_of(dataset) / "_sidecars" / named_by(dataset)[0]).unlink()

    found = dataset.publish("delta", check=True)

    assert "sidecars" in found.damaged[0]
    dataset.publish("delta", repair=True)
    assert shown(dataset, by_deltalake(home(dataset))) == shown(dataset, dataset.arrow())
    assert dataset.publish("delta", check=True).was_in_step


def test_property_asks_for_checkpoints_that_every_reader_knows(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 3, **{CHECKPOINTS: "classic"})
    assert not (log_of(dataset) / "_sidecars").exists()

    assert_shows(DELTA, dataset)
    assert shown(dataset, by_polars(home(dataset))) == shown(dataset, dataset.arrow())


def test_unknown_policy_of_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"publish\.delta\.checkpoints"):
        grown(tmp_path, 0, **{"publish.delta": "true", CHECKPOINTS: "v3"})


def test_table_of_a_head_that_changes_its_kind_goes_on(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 3)
    for kind in ("document", "tree", "document"):
        dataset.compact(head=kind)
        dataset.append(rows(random.Random(kind), 3))

        done = [door.publish(dataset) for door in (DELTA, ICEBERG)]

        assert not any(one.foreign or one.damaged for one in done)
        last = max(log_of(dataset).glob("*.checkpoint.parquet"))
        assert ("sidecar" in pq.read_schema(last).names) is (kind == "tree")
        for commit in sorted(log_of(dataset).glob("*.json"))[:-1]:
            commit.unlink()
        wanted = shown(dataset, dataset.arrow())
        assert shown(dataset, by_deltalake(home(dataset))) == wanted
        assert shown(dataset, by_pyiceberg(home(dataset))) == wanted
    assert_shows(DELTA, dataset)


@pytest.mark.usefixtures("_each")
def test_unpublished_tree_leaves_no_sidecar(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 2)

    assert dataset.unpublish("delta")

    assert [path for path in log_of(dataset).rglob("*") if path.is_file()] == []


# Manifests by leaf


def manifests_of(dataset: Dataset) -> dict[str, int]:
    """Return the manifests of the last snapshot by name, with the number of live files in each."""
    metadata = home(dataset) / "iceberg" / "metadata"
    last = (metadata / "version-hint.text").read_text()
    table = StaticTable.from_metadata(str(metadata / f"v{last}.metadata.json"))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return {
        manifest.manifest_path.rpartition("/")[2]: (manifest.added_files_count or 0)
        + (manifest.existing_files_count or 0)
        for manifest in snapshot.manifests(table.io)
    }


def by_leaf(manifests: dict[str, int]) -> dict[str, int]:
    """Return the manifests of leaves by the id of the leaf."""
    return {name[:32]: count for name, count in manifests.items() if name.count("-") == 3}


def test_snapshot_has_a_manifest_of_each_leaf(tmp_path: Path) -> None:
    dataset = grown(tmp_path)
    dataset.publish("iceberg")
    before, root = manifests_of(dataset), root_of(dataset)
    assert by_leaf(before) == {ref.id.hex(): live_in(root, ref) for ref in root.refs}
    assert len(root.refs) > 5

    dataset.where(f"day = '{DAYS[0]}'").delete()
    dataset.publish("iceberg")

    after, changed = manifests_of(dataset), root_of(dataset)
    assert by_leaf({name: n for name, n in after.items() if n}) == {
        ref.id.hex(): live_in(changed, ref) for ref in changed.refs
    }
    touched = {leaf.hex() for leaf in changed.gone if changed.gone[leaf] != root.gone.get(leaf)}
    of_both = {ref.id.hex() for ref in root.refs} & {ref.id.hex() for ref in changed.refs}
    kept = {name[:32] for name in by_leaf_names(before) & by_leaf_names(after)}
    assert kept == of_both - touched
    assert len(kept) > 2
    assert shown(dataset, by_pyiceberg(home(dataset))) == shown(dataset, dataset.arrow())


def live_in(root: Root, ref: Ref) -> int:
    gone = root.gone.get(ref.id)
    return ref.files - (0 if gone is None else gone.totals.files)


def by_leaf_names(manifests: dict[str, int]) -> set[str]:
    return {name for name in manifests if name.count("-") == 3}


def test_fold_moves_entries_and_keeps_the_snapshot_that_added_each(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 0)
    dataset.publish("iceberg")
    added_in = {}
    for number in range(6):
        before = {file.key for file in dataset.files()}
        dataset.append(rows(random.Random(number), 4))
        version = dataset.publish("iceberg").table_version
        for file in dataset.files():
            if file.key not in before:
                added_in[file.key] = version

    table = StaticTable.from_metadata(str(home(dataset) / "iceberg"))
    entries = table.inspect.entries().to_pylist()
    found = {entry["data_file"]["file_path"]: entry["sequence_number"] for entry in entries}

    root = dataset.uri.removesuffix("/d")
    assert found == {f"{root}/{path}": version for path, version in added_in.items()}
    assert root_of(dataset).refs


def test_manifest_that_lacks_a_file_is_found_and_the_table_is_written_again(
    tmp_path: Path,
) -> None:
    dataset = grown(tmp_path, 4)
    dataset.publish("iceberg")
    metadata = home(dataset) / "iceberg" / "metadata"
    whole = max(by_leaf_names(manifests_of(dataset)))
    (metadata / whole).unlink()

    assert dataset.publish("iceberg", check=True).damaged

    dataset.publish("iceberg", repair=True)
    assert shown(dataset, by_pyiceberg(home(dataset))) == shown(dataset, dataset.arrow())


def test_cleanup_keeps_the_manifests_of_leaves_that_a_snapshot_names(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 2)
    for number in range(4):
        dataset.overwrite(rows(random.Random(number), 9))
        dataset.publish("iceberg")
    age(tmp_path, days=1)

    sweep(dataset)

    assert shown(dataset, by_pyiceberg(home(dataset))) == shown(dataset, dataset.arrow())
    assert dataset.publish("iceberg", check=True).was_in_step
    metadata = home(dataset) / "iceberg" / "metadata"
    manifests = {path.name for path in metadata.glob("*-m*.avro")}
    named = set(manifests_of(dataset))
    assert named <= manifests
    assert len(manifests) < len(named) + 12  # those of the last snapshots before stay


# What follows publications


def test_maintenance_publishes_what_a_failed_publication_left(tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    plain = described()
    wanted = {**plain.properties, "publish.delta": "true", "publish.iceberg": "true"}
    dataset = lake.create("d", replace(plain, properties=wanted), head="tree")
    dataset.append(rows(random.Random(0), 9))
    inner = store_of(dataset)
    for number in range(3):
        failing = FailingStore(inner, fail_on="create", matching="_delta_log")
        commit = lakebed.Repository(failing).open("d").append(rows(random.Random(number), 9))
        assert [one.table for one in commit.not_published] == ["delta"]
    stale = [table.title for table in dataset.inspect.publications() if table.is_stale]
    assert stale == ["delta"]

    lake.maintain(only="publish")

    assert all(table.is_in_step for table in dataset.inspect.publications())
    assert shown(dataset, by_deltalake(home(dataset))) == shown(dataset, dataset.arrow())
    assert shown(dataset, by_pyiceberg(home(dataset))) == shown(dataset, dataset.arrow())


@pytest.mark.usefixtures("_each")
def test_tables_begin_again_after_an_erasure(tmp_path: Path) -> None:
    dataset = grown(tmp_path, 3)
    for target in ("iceberg", "kartothek"):
        dataset.publish(target)
    old = set(sidecars_of(dataset)) | set(manifests_of(dataset))
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)

    left = erased_tables.renew(store_of(dataset), "d", dataset.version, moment)

    assert left == ()
    assert not old & (set(sidecars_of(dataset)) | set(manifests_of(dataset)))
    assert len(list(log_of(dataset).glob("*.json"))) == 1
    assert shown(dataset, by_deltalake(home(dataset))) == shown(dataset, dataset.arrow())
    assert shown(dataset, by_pyiceberg(home(dataset))) == shown(dataset, dataset.arrow())
    assert all(table.is_in_step for table in dataset.inspect.publications())


def test_publication_reads_no_leaf_after_a_small_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = grown(tmp_path)
    dataset.append(rows(random.Random(2), 1))
    for target in ("delta", "iceberg"):
        dataset.publish(target)
    monkeypatch.setattr(stored_folds, "is_due", lambda *_: False)
    dataset.append(rows(random.Random(3), 1))
    PROCESS_CACHE.clear()
    store = CountingStore(store_of(dataset))
    again = lakebed.Repository(store).open("d")
    leaves = {ref.key("d") for ref in root_of(dataset).refs}
    read: list[str] = []
    whole = StoredLeaves.files
    monkeypatch.setattr(
        StoredLeaves, "files", lambda self, ref: read.append(ref.key("d")) or whole(self, ref)
    )

    again.publish("delta")
    again.publish("iceberg")

    assert leaves
    assert not leaves & set(read)
    assert store.counts.put < 12

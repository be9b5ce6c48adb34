"""Bugs that are put into the code of trees: the balance of the root or the scrub of bytes finds each."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tree_world import ORDER, World

from lakebed.errors import CorruptMetadataError
from lakebed.state.tree import fold, leaf
from lakebed.state.tree import leaf_merge as merge
from lakebed.state.tree import tree_files as live
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.leaf_files import Files, join
from lakebed.state.tree.leaf_merge import LeafOfRun
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_files import TreeFiles, scrub
from lakebed.state.tree.tree_root import Gone, Root


@pytest.fixture
def world() -> World:
    world = World(random.Random(4))
    for _ in range(3):
        world.commit(5, 0)
        world.fold()
    world.commit(4, 0)
    return world


def spoil_leaves(monkeypatch: pytest.MonkeyPatch, change) -> None:
    sound = merge._leaf

    def spoilt(files: Files, order: DirectoryOrder, *, level: int, run: int) -> LeafOfRun:
        return sound(change(files), order, level=level, run=run)

    monkeypatch.setattr(merge, "_leaf", spoilt)


def dropped(files: Files) -> Files:
    return files.without(np.array([0])) if files.count > 1 else files


def doubled(files: Files) -> Files:
    others = [label for label in files.labels() if label not in files.labels()[:1]]
    return join([files, files.slice(0, 1)], ORDER) if others else files


def swapped(files: Files) -> Files:
    """Name another file in the place of the last one, so that their number stays."""
    return join([files.slice(0, files.count - 1), files.slice(0, 1)], ORDER)


@pytest.mark.parametrize("change", [dropped, doubled, swapped])
def test_fold_that_loses_or_doubles_a_file_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, change
) -> None:
    spoil_leaves(monkeypatch, change)

    with pytest.raises(CorruptMetadataError, match="does not balance"):
        world.fold()


@pytest.mark.parametrize("change", [dropped, doubled, swapped])
def test_merge_that_loses_or_doubles_a_file_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, change
) -> None:
    spoil_leaves(monkeypatch, change)

    with pytest.raises(CorruptMetadataError, match="does not balance"):
        world.merge()


def swap_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a leaf give the names of its files to each other's directories, behind sound sums."""
    sound = leaf._files

    def spoilt(files: Files) -> bytes:
        own = [place for place in range(files.count) if place not in files.others]
        ends = [own[0], own[-1]] if len(own) > 1 else []
        names, schemas = files.names.copy(), files.schemas.copy()
        names[ends], schemas[ends] = names[ends[::-1]], schemas[ends[::-1]]
        return sound(replace(files, names=names, schemas=schemas))

    monkeypatch.setattr(leaf, "_files", spoilt)


def test_names_in_wrong_directories_are_found_in_the_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_names(monkeypatch)
    for _ in range(3):
        world.commit(6, 0)
    world.sizes = replace(world.sizes, merge=0)
    world.fold()

    world.root.check_balance()  # the sums that the root states are sound
    assert scrub(world.tree) != world.root.totals
    with pytest.raises(CorruptMetadataError, match="holds"):
        world.merge()


def test_unsorted_directories_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_leaves(monkeypatch, lambda files: replace(files, directories=files.directories[::-1]))

    with pytest.raises(CorruptMetadataError, match="not in order"):
        world.merge()


def test_commit_that_forgets_what_is_gone_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fold()
    monkeypatch.setattr("tree_world.locate", lambda *_: {})

    with pytest.raises(CorruptMetadataError, match="removes 3 files, of which 0 are live"):
        world.commit(0, 3)


def test_merge_that_forgets_what_is_gone_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fold()
    world.commit(0, 3)
    monkeypatch.setattr(merge._Merge, "gone", lambda *_: Gone((), Totals()))

    with pytest.raises(CorruptMetadataError, match="does not balance"):
        world.merge()


def test_wrong_place_of_a_gone_file_is_found_in_the_bytes(world: World) -> None:
    world.fold()
    world.commit(0, 1)
    ((leaf_id, gone),) = world.root.gone.items()
    (ref,) = (ref for ref in world.root.refs if ref.id == leaf_id)
    place = (int(gone.places[0]) + 1) % ref.files
    world.root = replace(world.root, gone={leaf_id: Gone.at([place], gone.totals)})

    world.root.check_balance()
    assert scrub(world.tree) != world.root.totals


def test_older_version_that_forgets_leaves_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(20, 0)
    world.commit(1, 0)
    sound = live.replayed

    def spoilt(copy: Root, *given: object) -> TreeFiles:
        tree = sound(copy, *given)  # type: ignore[arg-type]
        return replace(tree, root=replace(tree.root, refs=copy.refs))

    before = world.at(5)
    monkeypatch.setattr("tree_world.replayed", spoilt)
    after = world.at(5)

    assert before.count == len(before.labels) == len(world.versions[5])
    assert after.count == before.count != len(after.labels)


def test_older_version_that_forgets_removals_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fold()
    world.commit(0, 3)
    world.commit(1, 0)
    world.fold()
    world.commit(2, 2)
    version = world.root.version
    sound = live.replayed

    def spoilt(*given: object) -> TreeFiles:
        return replace(sound(*given), hidden={})  # type: ignore[arg-type]

    before = world.at(version)
    monkeypatch.setattr("tree_world.replayed", spoilt)
    after = world.at(version)

    assert set(before.labels) == world.versions[version]
    assert after.count == before.count != len(after.labels)


def test_fold_that_changes_the_files_does_not_land(world: World) -> None:
    folded = world.folded()
    assert folded is not None
    world.leaves.objects |= folded.objects("d")
    lost = folded.root.refs[-1]
    spoilt = replace(
        folded,
        root=replace(
            folded.root, refs=folded.root.refs[:-1], totals=folded.root.totals - lost.totals
        ),
    )

    with pytest.raises(CorruptMetadataError, match="changes the files"):
        fold.land(spoilt, world.root, world.leaves, ORDER)

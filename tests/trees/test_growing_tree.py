"""A telemetry tree that grows: each directory once, whatever dies, and what has changed is named."""

import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from telemetry_exports import exported

import lakebed
from lakebed import DatasetDescriptor, TelemetryOptions
from lakebed.arrow.formats.submissions import SubmissionsReader
from lakebed.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptMetadataError,
    InvalidInputError,
)
from lakebed.store import Store, open_store
from lakebed.tables.trees.exported import Contents, ExportedTree

LINES = DatasetDescriptor(
    schema={
        "type": "record",
        "name": "line",
        "fields": [{"name": name, "type": "string"} for name in ("uuid", "document")],
    }
).schema
DAYS = ("20130611", "20130612", "20130613")


def fields(*names: str) -> list[dict[str, Any]]:
    return [
        *({"name": name, "type": "string"} for name in ("uuid", "document")),
        *({"name": name, "type": ["null", "string"]} for name in names),
    ]


def make_pings(url: str) -> lakebed.Dataset:
    schema = {"type": "record", "name": "ping", "fields": fields("day", "channel")}
    descriptor = DatasetDescriptor(
        schema=schema,
        format="submissions",
        partition_by="dimension(day), dimension(channel, 'nightly', 'release')",
    )
    return lakebed.open_repository(url).create("pings", descriptor)


def day(name: str, count: int = 4, prefix: str = "u") -> list[dict[str, Any]]:
    return [
        {
            "uuid": f"{prefix}{name}-{number}",
            "document": {"day": name, "channel": ("nightly", "release", "own")[number % 3]},
        }
        for number in range(count)
    ]


@pytest.fixture
def pings() -> lakebed.Dataset:
    pings = make_pings(f"memory://{uuid.uuid4().hex}")
    pings.append(day(DAYS[0]))
    return pings


@pytest.fixture(params=["file", "memory", "s3"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    name = uuid.uuid4().hex
    if request.param == "s3":
        return f"s3://lake/{name}", request.getfixturevalue("s3_options")
    return (str(tmp_path / "tree") if request.param == "file" else f"memory://{name}"), {}


def lines_of(store: Store) -> Counter[str]:
    """Return what a reader finds that knows nothing of exports."""
    found: Counter[str] = Counter()
    for info in store.list(""):
        with store.open_input(info.key) as source:
            for batch in SubmissionsReader().batches(source, LINES):
                found.update(f"{row['uuid']} in {info.key[:8]}" for row in batch.to_pylist())
    return found


def expected(dataset: lakebed.View) -> Counter[str]:
    rows = dataset.arrow(["uuid", "document"]).to_pylist()
    return Counter(f"{row['uuid']} in {json.loads(row['document'])['day']}" for row in rows)


def test_each_day_is_exported_once(pings: lakebed.Dataset, tree: tuple[str, Any]) -> None:
    url, options = tree
    first = exported(pings, url, storage_options=options)
    again = exported(pings, url, storage_options=options)
    pings.append(day(DAYS[1]))
    second = exported(pings, url, storage_options=options)
    third = exported(pings.where(f"day = '{DAYS[1]}'"), url, storage_options=options)

    assert (first.row_count, again.row_count, second.row_count, third.row_count) == (4, 0, 4, 0)
    assert again.files == ()
    assert [path[:8] for path in second.files] == [DAYS[1]] * 3
    assert [len(one.unchanged) for one in (first, again, second, third)] == [0, 3, 3, 3]
    store = open_store(url, storage_options=options)
    assert lines_of(store) == expected(pings)


def test_day_that_has_changed_is_named_and_replaced_by_choice(
    pings: lakebed.Dataset, tree: tuple[str, Any]
) -> None:
    url, options = tree
    store = open_store(url, storage_options=options)
    exported(pings, url, storage_options=options)
    before = lines_of(store)
    pings.append(day(DAYS[0], 1, prefix="late"))
    pings.append(day(DAYS[1]))

    with pytest.raises(AlreadyExistsError, match=f"1 directory.*{DAYS[0]}/nightly"):
        exported(pings, url, storage_options=options)
    assert lines_of(store) == before  # nor is the new day there
    kept = exported(pings, url, storage_options=options, if_changed="keep")
    assert lines_of(store) == before + expected(pings.where(f"day = '{DAYS[1]}'"))
    replaced = exported(pings, url, storage_options=options, if_changed="replace")

    assert kept.kept == replaced.replaced == (f"{DAYS[0]}/nightly",)
    assert lines_of(store) == expected(pings)


def test_directory_without_rows_any_more_is_named_and_goes_by_choice(
    pings: lakebed.Dataset, tree: tuple[str, Any]
) -> None:
    url, options = tree
    pings.append(day(DAYS[1]))
    exported(pings, url, storage_options=options)
    pings.where(f"day = '{DAYS[0]}'").delete()

    with pytest.raises(AlreadyExistsError, match="3 directories"):
        exported(pings, url, storage_options=options)
    exported(pings.where(f"day = '{DAYS[1]}'"), url, storage_options=options)  # a view
    exported(pings, url, storage_options=options, if_changed="replace")

    assert lines_of(open_store(url, storage_options=options)) == expected(pings)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("named", [0, 1])
def test_directory_of_other_numbers_of_files_is_replaced_by_all_of_them(
    pings: lakebed.Dataset, tree: tuple[str, Any], count: int, named: int
) -> None:
    url, options = tree
    small = TelemetryOptions(max_bytes=100, named=named)
    pings.overwrite(day(DAYS[0], 6))
    exported(pings, url, storage_options=options, options=small)
    pings.overwrite(day(DAYS[0], count))

    exported(pings, url, storage_options=options, options=small, if_changed="replace")

    assert lines_of(open_store(url, storage_options=options)) == expected(pings)


def test_compaction_and_order_of_rows_change_nothing(
    pings: lakebed.Dataset, tmp_path: Path
) -> None:
    pings.append(day(DAYS[0], 2, prefix="v"))
    exported(pings, tmp_path / "tree")
    pings.compact()

    done = exported(pings, tmp_path / "tree")

    assert (done.row_count, len(done.unchanged)) == (0, 3)


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_file_that_is_not_as_it_was_written_is_a_change(
    pings: lakebed.Dataset, tmp_path: Path, damage: str
) -> None:
    exported(pings, tmp_path / "tree")
    path = tmp_path / "tree" / DAYS[0] / "nightly" / "001.gz"
    path.unlink() if damage == "remove" else path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(AlreadyExistsError, match="nightly"):
        exported(pings, tmp_path / "tree")
    exported(pings, tmp_path / "tree", if_changed="replace")

    assert lines_of(open_store(tmp_path / "tree")) == expected(pings)


def test_place_with_files_of_others_is_refused(pings: lakebed.Dataset, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "mine").write_text("x")
    with pytest.raises(AlreadyExistsError, match="was not written by an export"):
        exported(pings, tmp_path / "tree")
    (tmp_path / "tree" / "mine").unlink()
    exported(pings, tmp_path / "tree")
    other = tmp_path / "tree" / DAYS[1] / "nightly" / "001.gz"
    other.parent.mkdir(parents=True)
    other.write_text("of another program")
    pings.append(day(DAYS[1]))

    with pytest.raises(AlreadyExistsError, match=f"{DAYS[1]}/nightly/001.gz"):
        exported(pings, tmp_path / "tree")

    assert other.read_text() == "of another program"


def test_other_levels_and_another_choice_are_refused_by_name(
    pings: lakebed.Dataset, tmp_path: Path
) -> None:
    exported(pings, tmp_path / "tree")

    with pytest.raises(InvalidInputError, match="1 in names"):
        exported(pings, tmp_path / "tree", options=TelemetryOptions(named=1))
    with pytest.raises(InvalidInputError, match="if_changed='skip' is not valid"):
        exported(pings, tmp_path / "tree", if_changed="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda note: b"{",
        lambda note: note.replace(b"20130611/nightly/001", b"../../../../etc/001"),
        lambda note: note.replace(b"20130611/nightly/001", b"20130611/release/009"),
    ],
)
def test_damaged_note_is_named_and_nothing_is_touched(
    pings: lakebed.Dataset, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    exported(pings, tmp_path / "tree")
    note = tmp_path / "tree" / ".lakebed-export" / "tree.json"
    note.write_bytes(change(note.read_bytes()))
    before = lines_of(open_store(tmp_path / "tree"))

    with pytest.raises(CorruptMetadataError, match="note of exports"):
        exported(pings, tmp_path / "tree", if_changed="replace")

    assert lines_of(open_store(tmp_path / "tree")) == before


def test_of_two_exports_at_once_the_first_is_refused_and_shows_nothing(
    pings: lakebed.Dataset, tree: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = tree
    exported(pings, url, storage_options=options)
    pings.append(day(DAYS[1]))
    show = ExportedTree.show

    def overtaken(self: ExportedTree, *arguments: Any) -> None:
        monkeypatch.setattr(ExportedTree, "show", show)
        exported(pings, url, storage_options=options)
        show(self, *arguments)

    monkeypatch.setattr(ExportedTree, "show", overtaken)

    with pytest.raises(ConflictError, match="Another export"):
        exported(pings, url, storage_options=options)

    assert lines_of(open_store(url, storage_options=options)) == expected(pings)


def test_failed_export_leaves_nothing(pings: lakebed.Dataset, tmp_path: Path) -> None:
    pings.append([{"uuid": "x", "document": {"day": "d" * 240, "channel": "nightly"}}])
    long = pings.where(f"day = '{'d' * 240}'")

    with pytest.raises(InvalidInputError):
        exported(long, tmp_path / "tree", options=TelemetryOptions(named=2))

    assert not (tmp_path / "tree").exists() or list((tmp_path / "tree").rglob("*.gz")) == []
    exported(pings.where("day < 'd'"), tmp_path / "tree")


# What dies at its nth write or rename, without any chance to tidy up.
DYING = """
import os, sys
from pathlib import Path
import lakebed
from lakebed.store.posix import PosixStore
left = int(sys.argv[1])
def dying(call):
    def counted(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return call(*arguments, **named)
    return counted
repository = lakebed.open_repository(sys.argv[2])
dataset = repository["pings"]
for name in ("_put", "_create", "_replace", "_adopt", "_delete"):
    setattr(PosixStore, name, dying(getattr(PosixStore, name)))
Path.rename = dying(Path.rename)
repository.trees.export(dataset, sys.argv[3], if_changed="replace")
"""


@pytest.mark.crash
@pytest.mark.thorough
def test_export_that_is_killed_at_any_write_shows_no_half_day_and_is_finished(
    tmp_path: Path,
) -> None:
    pings = make_pings(str(tmp_path / "lake"))
    for number in range(1, 100):
        tree = tmp_path / f"tree{number}"
        pings.overwrite(day(DAYS[0], 3))
        pings.where(f"day <> '{DAYS[0]}'").delete()
        exported(pings, tree)
        pings.append([*day(DAYS[0], 1, prefix="late"), *day(DAYS[1], 3)])
        script = [sys.executable, "-c", DYING, str(number), str(tmp_path / "lake"), str(tree)]

        died = subprocess.run(script, check=False, timeout=60).returncode == 9

        shown = {path for path in lines_of(open_store(tree)) if path.endswith(DAYS[1])}
        assert len(shown) in (0, 3), f"half of a day is shown after write {number}"
        exported(pings, tree, if_changed="replace")
        assert lines_of(open_store(tree)) == expected(pings), f"after write {number}"
        assert [path.name for path in (tree / ".lakebed-export").glob("staged-*")] == []
        if not died:
            break
    assert number > 8


def test_files_of_a_task_that_was_repeated_are_not_shown(tmp_path: Path) -> None:
    target = open_store(tmp_path / "tree")
    tree = ExportedTree.claim(target, ["day"], 0, None)
    for number in (1, 2):
        tree.staged.put(f"20130611/00{number}.gz", b"lines")

    tree.show({"20130611": Contents(1, "digest", {"20130611/001.gz": 5})}, (), None)
    tree.discard()

    assert [info.key for info in target.list("")] == ["20130611/001.gz"]

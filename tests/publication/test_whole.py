"""A publication that says that a table is in step leaves one that every reader can read.

Whatever was deleted beside it, whoever stood still, whatever landed late or was damaged.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from heads import head_key
from inside import store_of
from table_doors import DELTA, DOORS, ICEBERG, Door, assert_shows

import lakebed
from lakebed.errors import (
    CorruptMetadataError,
    DatasetExistsError,
    LakebedError,
    StorageError,
)
from lakebed.store.posix import PosixStore
from lakebed.tables.delta import to_delta as delta_publication
from lakebed.testing import CountingStore, DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
AT_ONCE = {"clock_skew": dt.timedelta(0), "dry_run": False}
_MOST_CALLS = 200


class Killed(BaseException):
    """Ends a verb as a kill does: nothing is tidied up after it."""


class Meeting(DelegatingStore):
    """Lets something happen before the nth call."""

    def __init__(self, inner, at: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self.left, self.act = at, act

    @property
    def has_acted(self) -> bool:
        return self.left < 0

    def _meet(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.act()

    def _get(self, key):
        self._meet()
        return super()._get(key)

    def _get_if_changed(self, key, etag):
        self._meet()
        return super()._get_if_changed(key, etag)

    def _get_range(self, key, start, length):
        self._meet()
        return super()._get_range(key, start, length)

    def _size(self, key):
        self._meet()
        return super()._size(key)

    def _create(self, key, data):
        self._meet()
        return super()._create(key, data)

    def _replace(self, key, data, *, if_match):
        self._meet()
        return super()._replace(key, data, if_match=if_match)

    def _put(self, key, data):
        self._meet()
        super()._put(key, data)

    def _list(self, begins_with, *, recursive):
        self._meet()
        return iter(list(super()._list(begins_with, recursive=recursive)))

    def _delete(self, keys):
        for key in keys:  # one request may carry many, but each is deleted by itself
            self._meet()
            super()._delete([key])

    def _delete_if_match(self, key, etag):
        self._meet()
        return super()._delete_if_match(key, etag)


@pytest.fixture(params=DOORS, ids=str)
def door(request):
    return request.param


@pytest.fixture
def root(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def days(root):
    return lakebed.Repository(PosixStore(root, durable=False)).create("days", DESCRIPTOR)


def rows(n: int, *partitions: str) -> list[dict]:
    return [{"p": p, "n": n} for p in partitions]


def folder_of(door: Door, dataset: lakebed.Dataset) -> Path:
    return Path(dataset.uri.removeprefix("file://")) / door.folder


def at_each_call(root: Path, setup, verb, act) -> Iterator[tuple[int, lakebed.Repository]]:
    """Play a verb with something before each of its calls, each time in a lake of its own.

    Args:
        root: Of these lakes.
        setup: What has been done before; as the others, it is given a repository.
        verb: That is looked at.
        act: What happens beside it.

    Yields:
        The call before which it happened, and the repository after all.
    """
    for at in range(_MOST_CALLS):
        store = PosixStore(root / f"at{at}", durable=False)
        lake = lakebed.Repository(store)
        setup(lake)
        meeting = Meeting(store, at, lambda lake=lake: act(lake))
        with contextlib.suppress(LakebedError, Killed):
            verb(lakebed.Repository(meeting))
        if not meeting.has_acted:
            assert at > 5
            return
        yield at, lake
    raise AssertionError("the verb comes to no end")


def publishing_twice(door: Door) -> Callable[[lakebed.Repository], None]:
    def setup(lake: lakebed.Repository) -> None:
        days = lake.create("days", DESCRIPTOR)
        for n in range(2):
            days.overwrite(rows(n, "a", "b"))
            door.publish(days)

    return setup


def kill(_: lakebed.Repository) -> None:
    raise Killed


def assert_next_publication_is_whole(door: Door, lake: lakebed.Repository, at: int) -> None:
    days = lake.open("days")
    days.append(rows(9, "c"))
    done = door.publish(days)
    assert done.is_in_step, at
    assert_shows(door, days)
    assert door.publish(days, check=True).was_in_step, at
    assert door.publish(days).table_version is None, at


@pytest.mark.thorough
def test_publication_beside_an_unpublication_is_whole_after_the_next_one(door, tmp_path):
    def publish(lake: lakebed.Repository) -> None:
        days = lake.open("days")
        for n in range(2):
            days.append(rows(5 + n, "b"))
            door.publish(days)

    unpublish = lambda lake: door.unpublish(lake.open("days"))  # noqa: E731
    for at, lake in at_each_call(tmp_path, publishing_twice(door), unpublish, publish):
        assert_next_publication_is_whole(door, lake, at)


@pytest.mark.thorough
def test_unpublication_beside_a_publication_leaves_a_whole_table_or_none(door, tmp_path):
    def publish(lake: lakebed.Repository) -> None:
        days = lake.open("days")
        days.overwrite(rows(5, "b"))
        door.publish(days)

    unpublish = lambda lake: door.unpublish(lake.open("days"))  # noqa: E731
    for at, lake in at_each_call(tmp_path, publishing_twice(door), publish, unpublish):
        days = lake.open("days")
        if list(folder_of(door, days).glob("*.json")):
            assert_shows(door, days)
        assert_next_publication_is_whole(door, lake, at)


class Putting(DelegatingStore):
    """Keeps deletes back until they are told to land, and stands still after the first of them."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.kept: list[Callable[[], object]] = []

    def _delete(self, keys):
        keys = list(keys)
        self.kept.append(lambda: self.inner.delete(keys))

    def _delete_if_match(self, key, etag):
        self.kept.append(lambda: self.inner.delete_if_match(key, etag=etag))
        return True

    def _list(self, begins_with, *, recursive):
        if self.kept:
            raise Killed
        return super()._list(begins_with, recursive=recursive)


def publishing_never(lake: lakebed.Repository) -> None:
    lake.create("days", DESCRIPTOR).append(rows(1, "a"))


@pytest.mark.thorough
@pytest.mark.parametrize("before", ["never", "twice", "given up"])
def test_table_that_was_published_outlives_deletes_of_an_unpublication_that_land_late(
    before, door, tmp_path
):
    setup = publishing_never if before == "never" else publishing_twice(door)
    kept = []

    def begin(lake: lakebed.Repository) -> None:
        setup(lake)
        if before == "given up":
            door.unpublish(lake.open("days"))

    def publish(lake: lakebed.Repository) -> None:
        days = lake.open("days")
        days.append(rows(5, "b"))
        assert door.publish(days).is_in_step

    def unpublish(lake: lakebed.Repository) -> None:
        late = Putting(store_of(lake.open("days")))
        with contextlib.suppress(Killed):
            door.unpublish(lakebed.Repository(late).open("days"))
        kept[:] = late.kept

    for at, lake in at_each_call(tmp_path, begin, publish, unpublish):
        for land in kept:
            land()
        days = lake.open("days")
        if list(folder_of(door, days).glob("*.json")):
            assert_shows(door, days)
        assert_next_publication_is_whole(door, lake, at)


@pytest.mark.thorough
def test_unpublication_that_is_killed_leaves_what_the_next_publication_makes_whole(door, tmp_path):
    unpublish = lambda lake: door.unpublish(lake.open("days"))  # noqa: E731
    for at, lake in at_each_call(tmp_path, publishing_twice(door), unpublish, kill):
        assert_next_publication_is_whole(door, lake, at)
        assert door.unpublish(lake.open("days"))
        assert not [p for p in folder_of(door, lake.open("days")).rglob("*") if p.is_file()]


@pytest.mark.thorough
def test_namesake_that_is_published_beside_a_drop_is_whole(door, tmp_path):
    def create_again(lake: lakebed.Repository) -> None:
        with contextlib.suppress(DatasetExistsError):
            days = lake.create("days", DESCRIPTOR)
            for n in range(2):
                days.append(rows(5 + n, "b"))
                door.publish(days)

    met = 0
    drop = lambda lake: lake.drop("days")  # noqa: E731
    for at, lake in at_each_call(tmp_path, publishing_twice(door), drop, create_again):
        if lake.exists("days"):
            met += 1
            assert_next_publication_is_whole(door, lake, at)
    assert met > 5


@pytest.mark.thorough
def test_namesake_of_a_dataset_whose_drop_was_killed_is_published_whole(door, tmp_path):
    drop = lambda lake: lake.drop("days")  # noqa: E731
    for at, lake in at_each_call(tmp_path, publishing_twice(door), drop, kill):
        if not lake.exists("days"):
            lake.create("days", DESCRIPTOR).append(rows(5, "b"))
            door.publish(lake.open("days"))
            assert_shows(door, lake.open("days"))
        assert_next_publication_is_whole(door, lake, at)


@pytest.mark.thorough
@pytest.mark.parametrize("meanwhile", ["dropped", "created again", "published again"])
def test_publication_that_outlives_its_dataset_does_not_harm_the_one_of_the_namesake(
    meanwhile, door, tmp_path, monkeypatch
):
    monkeypatch.setattr(delta_publication, "COMMITS_A_CHECKPOINT", 1)

    def publish(lake: lakebed.Repository) -> None:
        days = lake.open("days")
        days.overwrite(rows(5, "b"))
        door.publish(days)

    def replace(lake: lakebed.Repository) -> None:
        lake.drop("days")
        if meanwhile != "dropped":
            lake.create("days", DESCRIPTOR).append(rows(7, "b"))
        if meanwhile == "published again":
            door.publish(lake.open("days"))

    for at, lake in at_each_call(tmp_path, publishing_twice(door), publish, replace):
        if not lake.exists("days"):
            lake.create("days", DESCRIPTOR).append(rows(7, "b"))
        days = lake.open("days")
        assert door.publish(days).is_in_step, at
        assert_shows(door, days)
        assert_next_publication_is_whole(door, lake, at)


def test_commit_of_a_dropped_dataset_that_lands_after_one_of_its_namesake_is_noticed(days):
    """As `publish` writes it that has looked at the log before the drop."""
    for n in range(2):
        days.append(rows(n, "a"))
        days.publish("delta")
    old = (folder_of(DELTA, days) / f"{1:020d}.json").read_bytes()
    lake = lakebed.Repository(store_of(days))
    lake.drop("days")
    days = lake.create("days", DESCRIPTOR)
    days.append(rows(2, "b"))
    days.publish("delta")
    (folder_of(DELTA, days) / f"{1:020d}.json").write_bytes(old)

    assert not days.publish("delta", check=True).was_in_step
    days.publish("delta")

    assert_shows(DELTA, days)
    assert days.publish("delta", check=True).was_in_step


def test_table_that_was_unpublished_begins_above_what_was_given_up(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    door.unpublish(days)
    first = door.publish(days)

    assert first.created
    assert not (folder_of(door, days) / f"{0:020d}.json").exists()
    assert not (folder_of(door, days) / "v1.metadata.json").exists()
    assert_shows(door, days)
    days.append(rows(2, "a"))
    assert door.publish(days).added_count == 1
    assert_shows(door, days)
    assert door.publish(days, check=True).was_in_step


class Late(DelegatingStore):
    """Keeps one write of a key back; it lands when it is told to, whatever has happened since."""

    def __init__(self, inner, name: str) -> None:
        super().__init__(inner)
        self.name, self.land = name, None

    def _late(self, key, write):
        if self.land is None and key.endswith(self.name):
            self.land = write
            raise StorageError("timed out", retryable=True)
        return write()

    def _create(self, key, data):
        data = bytes(data)
        return self._late(key, lambda: self.inner.create(key, data))

    def _replace(self, key, data, *, if_match):
        data = bytes(data)
        return self._late(key, lambda: self.inner.replace(key, data, if_match=if_match))

    def _put(self, key, data):
        data = bytes(data)
        return self._late(key, lambda: self.inner.put(key, data))


@pytest.mark.parametrize(
    ("door", "name"), [(ICEBERG, "version-hint.text"), (DELTA, "_last_checkpoint")], ids=str
)
def test_pointer_that_lands_late_leads_no_reader_back(door, name, days, monkeypatch):
    monkeypatch.setattr(delta_publication, "COMMITS_A_CHECKPOINT", 1)
    days.append(rows(1, "a"))
    door.publish(days)
    days.overwrite(rows(2, "a"))
    late = Late(store_of(days), name)
    with contextlib.suppress(StorageError):
        door.publish(lakebed.Repository(late).open("days"))
    days.overwrite(rows(3, "a"))
    door.publish(days)
    assert late.land is not None

    with contextlib.suppress(LakebedError):
        late.land()

    days.cleanup("0s", **AT_ONCE)
    assert_shows(door, days)
    assert door.publish(days, check=True).was_in_step


def test_hint_that_leads_back_is_told_and_mended(days):
    """By a release whose hint was put without a condition, or by hand."""
    for n in range(2):
        days.overwrite(rows(n, "a"))
        days.publish("iceberg")
    hint = folder_of(ICEBERG, days) / "version-hint.text"
    for damage in ("1", "", "ä", "9" * 5000, None):
        hint.unlink() if damage is None else hint.write_text(damage)

        assert "version-hint.text" in days.publish("iceberg", check=True).damaged[0]
        done = days.publish("iceberg", repair=damage == "1")

        assert done.is_in_step
        assert not done.was_in_step
        assert_shows(ICEBERG, days)
        assert days.publish("iceberg", check=True).was_in_step


def test_log_whose_beginning_others_have_deleted_is_told_and_begun_again(days, monkeypatch):
    monkeypatch.setattr(delta_publication, "COMMITS_A_CHECKPOINT", 2)
    for n in range(4):
        days.overwrite(rows(n, "a"))
        days.publish("delta")
    folder = folder_of(DELTA, days)
    for damage in ("*.checkpoint.parquet", f"{0:020d}.json", "*_last_checkpoint"):
        gone = list(folder.glob(damage))
        [path.unlink() for path in gone]
        if damage.startswith("*_"):
            gone += [path.unlink() or path for path in folder.glob("*.checkpoint.parquet")]
        if damage != f"{0:020d}.json":
            assert days.publish("delta", check=True).damaged, damage

        assert days.publish("delta").is_in_step
        assert_shows(DELTA, days)
        assert days.publish("delta", check=True).was_in_step, damage
        days.append(rows(9, "b"))
        days.publish("delta")
        assert_shows(DELTA, days)


def test_log_without_checkpoints_that_lacks_its_first_commit_is_begun_again(days):
    for n in range(2):
        days.overwrite(rows(n, "a"))
        days.publish("delta")
    (folder_of(DELTA, days) / f"{0:020d}.json").unlink()

    assert days.publish("delta", check=True).damaged
    assert days.publish("delta").is_in_step

    assert_shows(DELTA, days)
    assert days.publish("delta", check=True).was_in_step


def test_log_with_a_hole_is_told_and_mended_by_a_repair(days):
    for n in range(3):
        days.overwrite(rows(n, "a"))
        days.publish("delta")
    (folder_of(DELTA, days) / f"{1:020d}.json").unlink()

    assert "lacks commit 1" in days.publish("delta", check=True).damaged[0]
    assert days.publish("delta", repair=True).is_in_step

    assert_shows(DELTA, days)
    assert days.publish("delta", check=True).was_in_step


@pytest.mark.parametrize("number", [150_000_000, 10**18 - 1])
def test_commit_far_ahead_takes_no_memory_and_is_mended_by_a_repair(days, number):
    days.append(rows(1, "a"))
    days.publish("delta")
    folder = folder_of(DELTA, days)
    shutil.copy(folder / f"{0:020d}.json", folder / f"{number:020d}.json")

    assert f"lacks commit 1, but has {number}" in days.publish("delta", check=True).damaged[0]
    if number < 10**18 - 1:
        assert days.publish("delta", repair=True).is_in_step
        assert_shows(DELTA, days)
    assert days.unpublish("delta")
    days.publish("delta")
    assert_shows(DELTA, days)


def test_commit_that_no_log_reaches_is_named_and_unpublished(days):
    days.append(rows(1, "a"))
    days.publish("delta")
    folder = folder_of(DELTA, days)
    shutil.copy(folder / f"{0:020d}.json", folder / f"{'9' * 20}.json")

    with pytest.raises(CorruptMetadataError, match=r"999\.json") as info:
        days.publish("delta", repair=True)
    assert "unpublish" in info.value.hint
    assert days.unpublish("delta")
    days.publish("delta")
    assert_shows(DELTA, days)


def test_cleanup_goes_by_no_checkpoint_without_its_commit(days, monkeypatch):
    """As one that lands late leaves it, of a dataset of the same name that was dropped."""
    days.append(rows(1, "a"))
    days.publish("delta")
    with monkeypatch.context() as patch:
        patch.setattr(delta_publication, "COMMITS_A_CHECKPOINT", 1)
        days.append(rows(2, "a"))
        days.publish("delta")
    folder = folder_of(DELTA, days)
    (folder / f"{1:020d}.checkpoint.parquet").rename(folder / f"{7:020d}.checkpoint.parquet")

    days.cleanup("0s", **AT_ONCE)

    assert len(list(folder.glob("*.json"))) == 2


class Standing(DelegatingStore):
    """Lets something happen before the first write of a note."""

    def __init__(self, inner, act) -> None:
        super().__init__(inner)
        self.act = act

    def _write(self, key):
        if "/published/" in key and self.act is not None:
            act, self.act = self.act, None
            act()

    def _create(self, key, data):
        self._write(key)
        return super()._create(key, data)

    def _replace(self, key, data, *, if_match):
        self._write(key)
        return super()._replace(key, data, if_match=if_match)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_publisher_that_stood_still_shows_nothing_that_a_cleanup_took(door, days, is_first):
    days.append(rows(1, "a"))
    if not is_first:
        door.publish(days)
        days.overwrite(rows(2, "a"))
    store = store_of(days)
    shown = []

    def overtake() -> None:
        days.overwrite(rows(3, "a"))
        days.cleanup("0s", **AT_ONCE)

    class Looking(Standing):
        """Looks whenever the table may have moved whether readers can read it."""

        def _create(self, key, data):
            etag = super()._create(key, data)
            if key.endswith(".json") and "/published/" not in key:
                shown.append({reader: table.num_rows for reader, table in door.read(days).items()})
            return etag

    looking = lakebed.Repository(Looking(store, overtake)).open("days")
    if door is DELTA:
        assert door.publish(looking).version == days.version
        assert shown
    else:
        assert door.publish(lakebed.Repository(Standing(store, overtake)).open("days")).is_in_step

    assert_shows(door, days)


def test_cleanup_keeps_what_was_noted_after_it_looked(door, days):
    """The publisher has read the head before the commit of the cleanup, and noted after its look."""
    days.append(rows(1, "a"))
    door.publish(days)
    old = days.version
    root = Path(days.uri.removeprefix("file://"))
    files = {f"days/{path.relative_to(root)}" for path in root.glob("data/p=a/**/*.parquet")}
    days.overwrite(rows(2, "a"))
    door.publish(days)
    store = store_of(days)
    key = f"days/published/{door.name}.json"

    class Noting(DelegatingStore):
        has_noted = False

        def _replace(self, name, data, *, if_match):
            if name == head_key("days") and not self.has_noted:
                self.has_noted = True
                noted = store.get(key)
                note = json.loads(noted.data)
                note["versions"] = [old, *note["versions"]]
                store.replace(key, json.dumps(note).encode(), if_match=noted.etag)
            return super()._replace(name, data, if_match=if_match)

    noted = store.get(key)  # nothing of the old version is held for readers
    note = json.loads(noted.data) | {"left": []}
    store.replace(key, json.dumps(note).encode(), if_match=noted.etag)

    report = lakebed.Repository(Noting(store)).open("days").cleanup("0s", **AT_ONCE)

    assert files
    assert not files & {file.key for file in report.files}
    assert days.cleanup("0s", **AT_ONCE).kept_counts["published"] == len(files)


def damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    for place in range(1, len(flipped), max(1, len(flipped) // 3)):
        flipped[place] ^= 0xFF
    return {
        "nothing": b"",
        "short": content[: len(content) // 2],
        "number": b"5",
        "list": b"[[]]",
        "no text": b"\xff\xfe\x00",
        "deep": b"[" * 100_000,
        "flipped": bytes(flipped),
    }


_ICEBERG_OBJECTS = ("v3.metadata.json", "v1.metadata.json", "snap-*.avro", "*-m0.avro")


@pytest.mark.parametrize("which", _ICEBERG_OBJECTS)
@pytest.mark.thorough
def test_damaged_metadata_of_iceberg_has_a_named_error_and_stops_nothing(days, which):
    days.append(rows(0, "a"))
    for damage in damaged(b"x" * 100):
        for n in range(3):
            days.append(rows(n, "a"))
            days.publish("iceberg")
        files = sorted(folder_of(ICEBERG, days).glob(which.replace("v3", "v*").replace("v1", "v*")))
        files.sort(key=lambda path: (len(path.name), path.name) if path.name[0] == "v" else ())
        chosen = files[:1] if which.startswith("v1") else files[-1:]
        for path in chosen if which.startswith("v") else files:
            path.write_bytes(damaged(path.read_bytes())[damage])

        days.cleanup("0s", **AT_ONCE)
        checked = days.publish("iceberg", check=True)
        if not which.startswith("v1") and damage != "flipped":
            assert "days/iceberg/metadata" in checked.damaged[0], damage
            assert "cannot be read" in checked.damaged[0], damage
        days.append(rows(7, "b"))
        if which.startswith("v3") and damage != "flipped":
            with pytest.raises(CorruptMetadataError, match="days/iceberg/metadata") as info:
                days.publish("iceberg")
            assert "repair" in info.value.hint
        assert days.publish("iceberg", repair=True).is_in_step
        assert_shows(ICEBERG, days)
        assert days.publish("iceberg", check=True).was_in_step
        days.cleanup("0s", **AT_ONCE)
        assert_shows(ICEBERG, days)


def test_damaged_manifest_of_files_that_went_is_told_and_mended(days):
    for n in range(2):
        days.overwrite(rows(n, "a"))
        days.publish("iceberg")
    folder = folder_of(ICEBERG, days)
    newest = max(folder.glob("*-m1.avro"), key=lambda path: path.stat().st_mtime_ns)
    of_gone = newest.with_name(newest.name.replace("-m1", "-m0"))
    of_gone.write_bytes(of_gone.read_bytes()[:50])

    assert of_gone.name in days.publish("iceberg", check=True).damaged[0]
    assert days.publish("iceberg", repair=True).is_in_step

    assert_shows(ICEBERG, days)
    assert days.publish("iceberg", check=True).was_in_step


@pytest.mark.parametrize("pattern", ["*-m0.avro", "snap-*.avro"], ids=["manifest", "list"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:4] + b"\x02\x80\x80\x80\x80\x02",  # a key of 256 MiB
        lambda data: data[:4] + b"\x02\x01" + data[6:],  # a key of -1 bytes
        lambda data: data.replace(b"\x14avro.codec", b"\x94\xffavro.code"),
    ],
    ids=["half", "short", "huge", "negative", "shifted"],
)
def test_lengths_that_damage_has_changed_end_no_process(days, pattern, damage):
    days.append(rows(1, "a"))
    days.publish("iceberg")
    (avro,) = folder_of(ICEBERG, days).glob(pattern)
    whole = avro.read_bytes()
    avro.write_bytes(damage(whole))
    assert avro.read_bytes() != whole

    assert avro.name in days.publish("iceberg", check=True).damaged[0]
    assert days.publish("iceberg", repair=True).is_in_step

    assert_shows(ICEBERG, days)


def test_manifest_that_is_not_what_its_list_says_is_mended_by_a_repair(days):
    for n in range(3):
        days.append(rows(n, "ab"[n % 2]))
        days.publish("iceberg")
    first, *others = sorted(
        folder_of(ICEBERG, days).glob("*-m0.avro"), key=lambda path: path.stat().st_mtime_ns
    )
    for other in others:
        other.write_bytes(first.read_bytes())
    days.overwrite(rows(7, "a"))

    assert days.publish("iceberg", repair=True).is_in_step

    assert_shows(ICEBERG, days)
    assert days.publish("iceberg", check=True).was_in_step


def test_checkpoint_far_ahead_is_told_and_mended_by_a_repair(days, monkeypatch):
    monkeypatch.setattr(delta_publication, "COMMITS_A_CHECKPOINT", 1)
    for n in range(2):
        days.append(rows(n, "a"))
        days.publish("delta")
    folder = folder_of(DELTA, days)
    shutil.copy(folder / f"{1:020d}.checkpoint.parquet", folder / f"{6:020d}.checkpoint.parquet")

    assert f"{6:020d}" in days.publish("delta", check=True).damaged[0]
    days.overwrite(rows(7, "a"))
    assert days.publish("delta", repair=True).is_in_step

    assert_shows(DELTA, days)
    assert days.publish("delta", check=True).was_in_step
    assert_next_publication_is_whole(DELTA, lakebed.Repository(store_of(days)), 0)


def test_damaged_list_of_manifests_is_reported_by_a_cleanup_that_keeps_manifests(days):
    for n in range(3):
        days.overwrite(rows(n, "a"))
        days.publish("iceberg")
    folder = folder_of(ICEBERG, days)
    newest = max(folder.glob("snap-*"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:50])
    before = set(folder.glob("*-m*.avro"))

    report = days.cleanup("0s", **AT_ONCE)

    (kept,) = [file for file in report.kept if file.key.endswith(newest.name)]
    assert "cannot be read" in kept.note
    assert set(folder.glob("*-m*.avro")) == before
    assert days.count() == 1


@pytest.mark.parametrize("what", ["note", "metadata", "all"])
def test_what_is_damaged_is_unpublished_all_the_same(door, days, what):
    for n in range(2):
        days.append(rows(n, "a"))
        door.publish(days)
    note = Path(days.uri.removeprefix("file://")) / "published" / f"{door.name}.json"
    if what != "metadata":
        note.write_bytes(b"{")
    if what != "note":
        for path in folder_of(door, days).iterdir():
            path.write_bytes(b"\xff")

    assert door.unpublish(days)

    assert not [path for path in folder_of(door, days).rglob("*") if path.is_file()]
    assert days.cleanup("0s", **AT_ONCE).dataset == "days"
    door.publish(days)
    assert_shows(door, days)


@pytest.mark.parametrize("place", ["9" * 5000, "-1", "9" * 17, "1 2 3", "ä", "\uff11"])
def test_note_whose_place_leads_nowhere_is_not_believed(door, days, place):
    days.append(rows(1, "a"))
    door.publish(days)
    path = Path(days.uri.removeprefix("file://")) / "published" / f"{door.name}.json"
    note = json.loads(path.read_text())
    path.write_text(json.dumps(note | {"place": place}))
    days.append(rows(2, "a"))

    door.publish(days)

    assert_shows(door, days)


def test_publication_that_finds_nothing_to_do_asks_little(door, root):
    counting = CountingStore(PosixStore(root, durable=False))
    days = lakebed.Repository(counting).create("days", DESCRIPTOR)
    for n in range(60):
        days.append(rows(n, "a"))
        door.publish(days)
    counting.reset()

    assert door.publish(days).was_in_step

    counts = counting.reset()
    assert counts.total <= 7  # before the table was proven, it took two less
    assert (counts.list, counts.put, counts.delete) == (0, 0, 0)


def test_second_cleanup_of_a_published_dataset_finds_nothing_to_do(root):
    properties = {"publish.iceberg": "true", "publish.delta": "true"}
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties)
    days = lakebed.Repository(PosixStore(root, durable=False)).create("days", descriptor)
    for n in range(4):
        days.overwrite(rows(n, "a"))

    for _ in range(3):
        report = days.cleanup("0s", **AT_ONCE)

    assert (report.version, report.files) == (None, ())
    for door in DOORS:
        assert_shows(door, days)

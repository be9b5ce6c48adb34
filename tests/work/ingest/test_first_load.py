"""The load that creates its dataset, beside others who create and drop one of the name."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, LoadOptions, LoadReport
from lakebed.errors import CommitConflictError, InvalidInputError, LakebedError
from lakebed.store import Store, open_store
from lakebed.testing import DelegatingStore
from lakebed.work.ingest.load import load

NUMBERS = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]), index=["n"])
WAIT_S = 20


def load_numbers(store: Store, raw: Path, *, is_new: bool = True) -> LoadReport:
    """Load a file into `numbers`, which the load creates."""
    return load(
        store,
        "numbers",
        raw,
        "json",
        run=None,
        spark=None,
        options=LoadOptions(),
        create=NUMBERS if is_new else None,
    )


class PausedDrops(DelegatingStore):
    """A store whose nth bulk delete waits, once it is `reached`, until it may go on."""

    def __init__(self, inner: Store, nth: int) -> None:
        super().__init__(inner)
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        self._left = nth

    def _delete(self, keys: Sequence[str]) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            assert self.may_go_on.wait(WAIT_S)
        super()._delete(keys)


class HookedCreation(DelegatingStore):
    """A store that calls a hook right before the first head of a dataset is put."""

    def __init__(self, inner: Store, hook: Callable[[], object], of: str = "numbers") -> None:
        super().__init__(inner)
        self._hook, self._of = hook, of

    def _create(self, key: str, data: memoryview) -> str:
        if key.startswith(f"{self._of}.by-dataset"):
            self._hook()
        return super()._create(key, data)


@pytest.mark.parametrize("paused_at", [1, 2])
def test_a_drop_of_a_namesake_leaves_alone_what_was_staged_for_a_dataset_to_be_created(
    tmp_path: Path, paused_at: int
) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"n": 1}\n{"n": 2}\n')
    store = open_store(f"memory://first-load-beside-a-drop-{paused_at}")
    paused = PausedDrops(store, paused_at)
    drop = threading.Thread(target=lambda: lakebed.Repository(paused).drop("numbers"))

    def create_and_drop() -> None:
        lakebed.Repository(store).create("numbers", NUMBERS).append([{"n": 7}])
        drop.start()
        assert paused.reached.wait(WAIT_S)

    hooked = HookedCreation(store, create_and_drop)
    try:
        load_numbers(hooked, raw)
        is_loaded = True
    except LakebedError:
        is_loaded = False
    finally:
        paused.may_go_on.set()
        drop.join(WAIT_S)
    numbers = lakebed.Repository(store).open("numbers")
    assert numbers.check(deep=True).is_ok
    assert sorted(row["n"] for row in numbers.kite.reader()) == ([1, 2] if is_loaded else [])


TEXTS = DatasetDescriptor(schema=pa.schema([("text", pa.string())]))
SCHEMA_FILE = "numbers/data/_common_metadata"


class StoppedAtSchemaFiles(DelegatingStore):
    """A store whose user gives up once a schema file is written."""

    def _put(self, key: str, data: memoryview) -> None:
        super()._put(key, data)
        if key == SCHEMA_FILE:
            raise KeyboardInterrupt


def test_a_load_that_finds_its_dataset_created_by_others_leaves_their_schema_file_alone(
    tmp_path: Path,
) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"n": 1}\n')
    store = open_store("memory://first-load-beside-another-dataset")
    lakebed.Repository(store).create("numbers", TEXTS)
    before = store.get(SCHEMA_FILE).data
    with pytest.raises(CommitConflictError):
        load_numbers(StoppedAtSchemaFiles(store), raw)
    assert store.get(SCHEMA_FILE).data == before


def test_a_schema_file_that_a_drop_takes_while_a_load_creates_its_dataset_is_written_again(
    tmp_path: Path,
) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"n": 1}\n{"n": "one"}\n')
    store = open_store("memory://first-load-beside-a-late-drop")
    hooked = HookedCreation(store, lambda: store.delete([SCHEMA_FILE]))
    load_numbers(hooked, raw)
    assert store.size(SCHEMA_FILE)
    assert lakebed.Repository(store).open("numbers").check().is_ok


QUARANTINE = "numbers_quarantine"
QUARANTINE_SCHEMA_FILE = f"{QUARANTINE}/data/_common_metadata"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"n": 1}\n{"n": "one"}\n')
    return raw


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "lake")
    lakebed.Repository(store).create("numbers", NUMBERS)
    return store


def test_a_schema_file_that_a_drop_takes_while_a_quarantine_is_created_is_written_again(
    store: Store, raw: Path
) -> None:
    hooked = HookedCreation(store, lambda: store.delete([QUARANTINE_SCHEMA_FILE]), QUARANTINE)

    load_numbers(hooked, raw, is_new=False)

    assert not lakebed.Repository(store).open(QUARANTINE).check().problems


def test_something_else_that_takes_the_name_of_a_quarantine_keeps_its_own_schema_file(
    store: Store, raw: Path
) -> None:
    repository = lakebed.Repository(store)
    hooked = HookedCreation(store, lambda: repository.create(QUARANTINE, TEXTS), QUARANTINE)

    with pytest.raises(InvalidInputError, match="is not a quarantine"):
        load_numbers(hooked, raw, is_new=False)

    assert repository.open(QUARANTINE).descriptor == TEXTS
    assert not repository.open(QUARANTINE).check().problems
    assert repository.open("numbers").count() == 0

"""A writing call that the store refuses leaves no object behind: no rows, facts, postings or notes."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from copies import copy_of
from raw_files import run_through
from writing_calls import writing_calls

from lakebed import DatasetDescriptor, FromFiles, Ingest, Repository, by
from lakebed.errors import AccessDeniedError
from lakebed.state.reader import read_head
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore
from lakebed.work import compaction

pytestmark = pytest.mark.thorough

SCHEMA = pa.schema([("kind", pa.string()), ("n", pa.int64())])
EVENTS = DatasetDescriptor(schema=SCHEMA, partition_by=[by.dimension("kind", ["a"])], index=["n"])
DENIED = AccessDeniedError("Access was denied.")


def rows(*numbers: int) -> list[dict[str, object]]:
    return [{"kind": "ab"[n % 2], "n": n} for n in numbers]


def write_raw(folder: Path, name: str, *numbers: int, bad: int = 0) -> Path:
    path = folder / name
    lines = [json.dumps(row) for row in rows(*numbers)] + [f"damaged {n}" for n in range(bad)]
    path.write_text("\n".join(lines) + "\n")
    return path


def ingest_of(folder: Path) -> Ingest:
    return Ingest(
        name="daily",
        into="memory://unused/d",
        source=FromFiles(paths=folder / "in", supersede="path"),
        format="json",
        create=EVENTS,
        max_rejects=0.5,
    )


Act = Callable[[Repository], object]


class Lake:
    """An indexed dataset with appended and ingested rows, and raw files that have changed since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        self.store: Store = MemoryStore(uuid.uuid4().hex)
        repository = Repository(self.store)
        dataset = repository.create("d", EVENTS)
        for name in ("one", "two"):
            write_raw(folder / "in", f"{name}.jsonl", 1, 2, 3, bad=1)
        self._ingest(repository)
        repository.open("d_quarantine").indices.build("source_file")
        dataset.append(rows(4, 5))
        dataset.append(rows(6, 7))
        write_raw(folder / "in", "one.jsonl", 8, 9, 10, 11, bad=2)
        write_raw(folder, "late.jsonl", 12, 13, bad=1)

    def copy(self) -> Store:
        """Return another store with the same objects."""
        return copy_of(self.store)

    def _ingest(self, repository: Repository) -> None:
        run_through(repository._store, ingest_of(self.folder))

    def acts(self) -> dict[str, Act]:
        return {
            "append": lambda one: one.open("d").append(rows(20)),
            "overwrite": lambda one: one.open("d").overwrite(rows(20)),
            "rerun": lambda one: one.open("d").rerun(rows(20), "daily", replace_all=True),
            "delete": lambda one: one.open("d").where("n < 5").delete(),
            "merge": lambda one: one.open("d").merge(rows(2, 4, 20), on=["n"], missing="delete"),
            "compact": lambda one: one.open("d").compact(),
            "promote": lambda one: one.open("d").dimensions.promote({"kind": ["a", "b"]}),
            "rollback": lambda one: one.open("d").rollback(version=1),
            "build_index": lambda one: one.open("d").indices.build("kind"),
            "load": lambda one: one.open("d").load(self.folder / "late.jsonl", run="late"),
            "ingest": self._ingest,
        }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


def keys(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


def versions(store: Store) -> dict[str, int]:
    repository = Repository(store)
    return {name: repository.open(name).version for name in ("d", "d_quarantine")}


@pytest.mark.parametrize(
    "verb",
    ["append", "overwrite", "rerun", "delete", "merge", "compact", "promote", "rollback", "build_index",
     "load", "ingest"],
)  # fmt: skip
def test_a_verb_that_the_store_refuses_leaves_nothing_behind(lake: Lake, verb: str) -> None:
    act = lake.acts()[verb]
    for name, nth in writing_calls(lake.copy(), act):
        store = lake.copy()
        before, known = keys(store), versions(store)
        failing = FailingStore(store, fail_on=name, nth=nth, error=DENIED)

        with pytest.raises(AccessDeniedError):
            act(Repository(failing))

        # What was committed before the failure counts; it alone may have brought something.
        left = {
            key
            for key in keys(store) - before
            if versions(store)[key.partition("/")[0].partition(".")[0]]
            == known[key.partition("/")[0].partition(".")[0]]
        }
        assert left == set(), f"{name} {nth}"


@pytest.mark.parametrize("nth", range(1, 7))
def test_an_index_that_one_of_its_threads_cannot_write_leaves_nothing_behind(
    lake: Lake, nth: int
) -> None:
    store = lake.copy()
    before = keys(store)
    failing = FailingStore(
        store, fail_on="get_range", nth=nth, error=MemoryError(), matching=".par"
    )

    with pytest.raises(MemoryError):
        Repository(failing).open("d").indices.build("kind")

    assert failing.has_failed
    assert {key for key in keys(store) - before if "/postings/" in key} == set()


def test_a_compaction_of_which_others_took_all_files_out_leaves_nothing_behind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lake.copy()
    dataset = Repository(store).open("d")
    rewrite = compaction.rewrite_all

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        written = rewrite(*args, **kwargs)
        if dataset.count():
            dataset.overwrite([], view=dataset)
        return written

    monkeypatch.setattr(compaction, "rewrite_all", overtaken)

    dataset.compact()

    named = {
        one.key
        for segments in read_head(store, "d").state.lists.postings.values()
        for one in segments
    }
    lying = {key for key in keys(store) if key.startswith("d/postings/")}
    assert lying - keys(lake.store) <= named
    assert dataset.count() == 0

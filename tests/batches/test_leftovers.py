"""A writing call that the store refuses leaves no object behind: no rows, facts, postings or notes."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from writing_calls import writing_calls

import lakebed
from lakebed import DatasetDescriptor, FromFiles, Ingest, Repository, by
from lakebed.errors import AccessDeniedError
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

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
        source=FromFiles(paths=folder / "in"),
        format="json",
        create=EVENTS,
    )


Act = Callable[[Repository], object]


class Lake:
    """An indexed dataset with appended and ingested rows, and raw files that have changed since."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        (folder / "in").mkdir(exist_ok=True)
        self.store: Store = MemoryStore(uuid.uuid4().hex)
        repository = Repository(self.store)
        dataset = repository.create("d", EVENTS)
        for name in ("one", "two"):
            write_raw(folder / "in", f"{name}.jsonl", 1, 2, 3, bad=1)
        self.ingest(repository)
        repository.open("d_quarantine").build_index("source_file")
        dataset.append(rows(4, 5))
        dataset.append(rows(6, 7))
        write_raw(folder / "in", "one.jsonl", 8, 9, 10, 11, bad=2)
        write_raw(folder, "late.jsonl", 12, 13, bad=1)

    def ingest(self, repository: Repository) -> None:
        """Ingest through the store of a repository."""
        store = repository._store  # noqa: SLF001 - one that fails has no address
        with self._monkeypatch.context() as patch:
            patch.setattr("lakebed.pipeline.ingest.open_store", lambda *_, **__: store)
            patch.setattr("lakebed.pipeline.ingest.open_repository", lambda *_, **__: repository)
            ingest_of(self.folder).run()

    def acts(self) -> dict[str, Act]:
        return {
            "append": lambda one: one.open("d").append(rows(20)),
            "overwrite": lambda one: one.open("d").overwrite(rows(20)),
            "rerun": lambda one: one.open("d").rerun(rows(20), "daily"),
            "delete": lambda one: one.open("d").where("n < 5").delete(),
            "compact": lambda one: one.open("d").compact(),
            "promote": lambda one: one.open("d").promote({"kind": ["a", "b"]}),
            "rollback": lambda one: one.open("d").rollback(version=1),
            "build_index": lambda one: one.open("d").build_index("kind"),
            "load": lambda one: one.open("d").load(self.folder / "late.jsonl", run="late"),
            "ingest": self.ingest,
        }

    def keys(self) -> set[str]:
        return {info.key for info in self.store.list("")}

    def versions(self) -> tuple[int, int]:
        repository = Repository(self.store)
        return repository.open("d").version, repository.open("d_quarantine").version


VERBS = ("append", "overwrite", "rerun", "delete", "compact", "promote", "rollback", "build_index",
         "load", "ingest")  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_the_store_refuses_leaves_nothing_behind(verb, tmp_path, monkeypatch) -> None:
    calls = Lake(tmp_path, monkeypatch)
    for name, nth in writing_calls(calls.store, calls.acts()[verb]):
        lake = Lake(tmp_path, monkeypatch)
        before, versions = lake.keys(), lake.versions()
        failing = FailingStore(lake.store, fail_on=name, nth=nth, error=DENIED)

        with pytest.raises(AccessDeniedError):
            lake.acts()[verb](Repository(failing))

        changed = tuple(
            name
            for name, old, new in zip(("d", "d_quarantine"), versions, lake.versions(), strict=True)
            if old != new
        )
        # What was committed before the failure counts; it alone may have come.
        new = {
            key
            for key in lake.keys() - before
            if key.partition("/")[0].split(".")[0] not in changed
        }
        assert new == set(), f"{name} {nth}"
        assert before - lake.keys() == set() or changed

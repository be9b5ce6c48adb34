"""A lake whose requests are counted, and verbs as a pipeline and a person call them in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Pipeline, Repository
from lakebed.errors import CommitConflictError
from lakebed.store import open_store
from lakebed.testing import CountingStore

SALES = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("amount", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A lake in a folder, with raw files beside it.

    Attributes:
        root: The folder.
        store: The store of all repositories that are opened, which counts.
    """

    root: Path
    store: CountingStore

    @classmethod
    def in_folder(cls, root: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
        store = CountingStore(open_store(str(root / "lake")))
        for module in ("lakebed.repository", "lakebed.pipeline.declared_dataset"):
            monkeypatch.setattr(f"{module}.open_store", lambda *_args, **_options: store)
        (root / "in").mkdir()
        return cls(root=root, store=store)

    @property
    def repository(self) -> Repository:
        return Repository(self.store)

    def deliver(self, name: str, lines: list[object]) -> Path:
        """Write a raw file of JSON lines; a text is a line as it stands."""
        file = self.root / "in" / name
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("".join(f"{text}\n" for text in texts))
        return file

    def pipeline(self) -> Pipeline:
        return Pipeline(
            ingest=lakebed.Ingest(
                name="sales",
                into=str(self.root / "lake" / "sales"),
                source=lakebed.FromFiles(paths=str(self.root / "in"), supersede="path"),
                create=lakebed.DatasetDescriptor(schema=SALES, partition_by="shop"),
                max_rejects=1,
            ),
            retention=lakebed.RetentionRule(delete_where="amount < 0"),
            layout=lakebed.LayoutRule(min_files=2),
            publish=lakebed.PublishRule(delta=True),
            cleanup=lakebed.CleanupRule(older_than="30d"),
        )

    def lose_a_race(self) -> None:
        """Overwrite from a version that another commit has changed."""
        sales = self.repository.open("sales")
        seen = sales.snapshot()
        sales.append([{"id": 90, "shop": "north", "amount": 1}])
        with pytest.raises(CommitConflictError):
            sales.overwrite([{"id": 91, "shop": "north", "amount": 1}], base=seen)

    def demo(self) -> dict[str, object]:
        """Do what a lake goes through in its life, and return the results by name."""
        self.deliver(
            "monday.jsonl",
            [
                {"id": 1, "shop": "north", "amount": 5},
                {"id": 2, "shop": "south", "amount": -1},
                "torn",
            ],
        )
        done: dict[str, object] = {"first": self.pipeline().run()}
        self.deliver("tuesday.jsonl", [{"id": 3, "shop": "north", "amount": 7}])
        done["second"] = self.pipeline().run()
        sales = self.repository.open("sales")
        verbs: dict[str, Callable[[], object]] = {
            "append": lambda: sales.append([{"id": 4, "shop": "west", "amount": 1}], run="by hand"),
            "rerun": lambda: sales.rerun(
                [{"id": 4, "shop": "west", "amount": 2}], run="by hand", replace_all=True
            ),
            "upsert": lambda: sales.upsert([{"id": 4, "shop": "west", "amount": 3}], on="id"),
            "delete": lambda: sales.delete("id = 1"),
            "rollback": lambda: sales.rollback(version=3),
            "overwrite": lambda: sales.overwrite([{"id": 5, "shop": "east", "amount": 1}]),
            "index": lambda: sales.indices.build("id"),
            "read": lambda: sales.where("shop = 'north' AND amount > 5").arrow(),
            "compact": lambda: sales.compact(),
            "publish": lambda: sales.publish("delta"),
            "cleanup": lambda: sales.cleanup(dry_run=False),
        }
        done.update((name, call()) for name, call in verbs.items())
        return done

"""A repository against a dict, with transactions that get in each other's way."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError
from lakebed.store import open_store, segments

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("v", pa.int64())]), partition_by=[by.identity("p")]
)
VALUES = ["a", "b/c", None]
VIEWS = {"p = 'a'": {"a"}, "p IS NULL": {None}, "p IN ('a', 'b/c')": {"a", "b/c"}}

Rows = collections.Counter[tuple[str | None, int]]
partitions = st.sets(st.sampled_from(VALUES), min_size=1)
views = st.sampled_from(sorted(VIEWS))
_names = itertools.count()
_numbers = itertools.count()


class RepositoryMachine(RuleBasedStateMachine):
    """Each rule is done to the dataset and to the model."""

    @initialize(
        head_format=st.sampled_from(["json", "msgpack.zstd"]), fanout=st.sampled_from([2, 8])
    )
    def create(self, head_format: Any, fanout: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(segments, "FANOUT", fanout)
        self.repository = lakebed.Repository(open_store(f"memory://model-{next(_names)}"))
        self.dataset = self.repository.create("d", DESCRIPTOR, head_format=head_format)
        self.rows: Rows = collections.Counter()
        self.versions: list[Rows] = [self.rows]

    def teardown(self) -> None:
        if not hasattr(self, "dataset"):
            return
        assert self.dataset.version == len(self.versions) - 1
        for version, rows in enumerate(self.versions):
            assert self.read(self.dataset.at(version=version)) == rows
        for commit in self.dataset.history():
            if commit.batch_id is not None:
                past = self.dataset.at(batch_id=commit.batch_id)
                assert past.version == commit.version
        assert self.dataset.at(time=self.dataset.history()[-1].committed_at).version == (
            self.dataset.version
        )
        self.patch.undo()

    def read(self, view: lakebed.View) -> Rows:
        return collections.Counter((row["p"], row["v"]) for row in view.kite.reader())

    def entities(self, keys: set[str | None]) -> list[dict[str, Any]]:
        return [{"p": key, "v": next(_numbers)} for key in keys]

    def committed(self, rows: list[dict[str, Any]], replaced: set[str | None]) -> None:
        kept = {row: n for row, n in self.rows.items() if row[0] not in replaced}
        self.rows = collections.Counter(kept)
        self.rows.update((row["p"], row["v"]) for row in rows)
        self.versions.append(self.rows)

    @rule(keys=partitions)
    def append(self, keys: set[str | None]) -> None:
        rows = self.entities(keys)

        self.dataset.append(rows)

        self.committed(rows, set())

    @rule(keys=partitions)
    def overwrite(self, keys: set[str | None]) -> None:
        rows = self.entities(keys)

        self.dataset.overwrite(rows)

        self.committed(rows, keys)

    @rule(view=views, is_empty=st.booleans())
    def overwrite_view(self, view: str, is_empty: bool) -> None:
        rows = [] if is_empty else self.entities(VIEWS[view])

        self.dataset.overwrite(rows, view=self.dataset.where(view))

        self.committed(rows, VIEWS[view])

    @rule(outer=partitions, inner=partitions, is_view=st.booleans(), view=views)
    def overwrite_while_others_commit(
        self, outer: set[str | None], inner: set[str | None], is_view: bool, view: str
    ) -> None:
        keys = VIEWS[view] if is_view else outer
        rows, others = self.entities(keys), self.entities(inner)

        def staged() -> Iterator[dict[str, Any]]:
            self.dataset.append(others)
            self.committed(others, set())
            yield from rows

        target = self.dataset.where(view) if is_view else None
        if keys & inner:
            with pytest.raises(CommitConflictError) as caught:
                self.dataset.overwrite(staged(), view=target)
            assert len(caught.value.partitions) == len(keys & inner)
        else:
            self.dataset.overwrite(staged(), view=target)
            self.committed(rows, keys)

    @rule(outer=partitions, inner=partitions)
    def append_while_others_overwrite(self, outer: set[str | None], inner: set[str | None]) -> None:
        rows, others = self.entities(outer), self.entities(inner)

        def staged() -> Iterator[dict[str, Any]]:
            self.dataset.overwrite(others)
            self.committed(others, inner)
            yield from rows

        self.dataset.append(staged())

        self.committed(rows, set())

    @precondition(lambda self: len(self.versions) > 3)
    @rule()
    def fail_in_the_midst(self) -> None:
        def staged() -> Iterator[dict[str, Any]]:
            yield from self.entities({"a"})
            raise ZeroDivisionError

        held = {info.key for info in self.repository.store.list()}

        with pytest.raises(ZeroDivisionError):
            self.dataset.append(staged())

        assert {info.key for info in self.repository.store.list()} == held

    @rule()
    def read_back(self) -> None:
        assert self.read(self.repository.open("d")) == self.rows
        for text, keys in VIEWS.items():
            expected = {row: n for row, n in self.rows.items() if row[0] in keys}
            assert self.read(self.dataset.where(text)) == expected


TestRepository = RepositoryMachine.TestCase
TestRepository.settings = examples(0.15, stateful_step_count=15)

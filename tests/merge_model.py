"""Random merges, and what else happens to a dataset, against a list of rows as the model."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import by
from lakebed.errors import DuplicateKeyError, InvalidInputError
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema(
    [
        pa.field("a", pa.float64()),
        pa.field("b", pa.string()),
        pa.field("p", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("spot", pa.struct([("y", pa.int64())])),
    ]
)
FLOATS = [None, math.nan, 0.0, -0.0, 1.5, 2.0, -3.0, 1e300]
TEXTS = [None, "", "x", "y", "zoë", "long text " * 3]
PARTITIONS = [None, "p", "q", "r/s"]
RUNS = [None, "one", "two"]
STRATEGIES: list[list[Any]] = [
    [],
    [by.identity("p")],
    [by.hash("b", 3)],
    [by.dimension("p", ["p", "q"])],
    [by.hash("a", 2), by.identity("p")],
]
INDICES: list[tuple[str, ...]] = [(), ("a",), ("b",), ("a", "b")]

Row = dict[str, Any]
Truth = bool | None


def _unknown(*values: Any) -> bool:
    return any(value is None for value in values)


# Conditions as SQL, and as what they say of a row of the dataset and one of the data.
CONDITIONS: list[tuple[str, Callable[[Row, Row], Truth]]] = [
    ("source.v > target.v", lambda t, s: None if _unknown(t["v"], s["v"]) else s["v"] > t["v"]),
    ("target.v IS NULL OR source.v >= 3", lambda t, s: t["v"] is None or (s["v"] or -1) >= 3),
    ("NOT (target.p = 'q')", lambda t, _: None if t["p"] is None else t["p"] != "q"),
    ("source.op = 'D'", lambda _, s: None if s["op"] is None else s["op"] == "D"),
    (
        "target.a <= source.a AND source.op IN ('D', 'U')",
        lambda t, s: (
            None
            if _unknown(t["a"], s["a"], s["op"])
            else _le(t["a"], s["a"]) and s["op"] in ("D", "U")
        ),
    ),
    (
        "target.spot.y = source.v",
        lambda t, s: (
            None
            if t["spot"] is None or _unknown(t["spot"]["y"], s["v"])
            else t["spot"]["y"] == s["v"]
        ),
    ),
    ("TRUE", lambda _, __: True),
]
OF_SOURCE: list[tuple[str, Callable[[Row], Truth]]] = [
    ("source.op != 'D'", lambda s: None if s["op"] is None else s["op"] != "D"),
    ("source.v > 1", lambda s: None if s["v"] is None else s["v"] > 1),
]
OF_TARGET: list[tuple[str, Callable[[Row], Truth]]] = [
    ("target.p = 'p'", lambda t: None if t["p"] is None else t["p"] == "p"),
    (
        "target.v < 3 OR target.b IS NULL",
        lambda t: (t["v"] is not None and t["v"] < 3) or t["b"] is None,
    ),
]
VALUES: list[tuple[dict[str, Any], Callable[[Row, Row], Row]]] = [
    ({"v": "target.v + source.v"}, lambda t, s: {"v": _plus(t["v"], s["v"])}),
    (
        {"v": "COALESCE(source.v, target.v, -1)", "b": "source.b"},
        lambda t, s: {
            "v": next((v for v in (s["v"], t["v"]) if v is not None), -1),
            "b": s["b"],
        },
    ),
    (
        {"v": "GREATEST(source.v, target.v * 2)", "spot": "source.spot", "p": "'q'"},
        lambda t, s: {"v": _greatest(s["v"], _times(t["v"])), "spot": s["spot"], "p": "q"},
    ),
    ({"a": math.nan, "v": 7}, lambda _, __: {"a": math.nan, "v": 7}),
]
OF_ONE: list[tuple[dict[str, Any], Callable[[Row], Row]]] = [
    ({"v": "target.v - 1"}, lambda t: {"v": None if t["v"] is None else t["v"] - 1}),
    ({"p": "target.b"}, lambda t: {"p": t["b"]}),
]
VIEWS: list[tuple[str, Callable[[Row], Truth]]] = [
    ("p = 'p'", lambda t: t["p"] == "p"),
    ("v >= 0", lambda t: t["v"] is not None and t["v"] >= 0),
]


def _le(one: float, other: float) -> bool:
    return (math.isnan(one), one) <= (math.isnan(other), other) if not math.isnan(other) else True


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _times(one: int | None) -> int | None:
    return None if one is None else 2 * one


def _greatest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def key_of(row: Row, on: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return what rows with equal keys have in common; None for a key with a null."""
    values = [row[name] for name in on]
    if None in values:
        return None
    return tuple("NaN" if value != value else value + 0.0 if isinstance(value, float) else value
                 for value in values)  # fmt: skip


class Meddling(DelegatingStore):
    """Lets somebody else act right before one of the next puts of a head or of a data file."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.act: Callable[[], object] | None = None
        self.before = "head"

    def _meddle(self, where: str) -> None:
        if self.before == where and self.act is not None:
            act, self.act = self.act, None
            act()

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._meddle("head")
        return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        if "/data/" in key:
            self._meddle("file")
        super()._put(key, data)


class Model:
    """A dataset, and the rows that it should hold, each with the run that wrote it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rows: list[Row] = []
        self.told: list[str] = []
        store = MemoryStore(uuid.uuid4().hex)
        self.store = Meddling(store)
        descriptor = lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=self.rng.choice(STRATEGIES),
            index=self.rng.choice(INDICES),
            format=self.rng.choice(["parquet", "parquet", "parquet", "avro"]),
        )
        lakebed.Repository(store).create("d", descriptor)
        self.dataset = lakebed.Repository(self.store).open("d")
        self.beside = lakebed.Repository(store).open("d")
        self.fields: list[str] = []

    def new_rows(self, count: int) -> list[Row]:
        rng = self.rng
        return [
            {
                "a": rng.choice(FLOATS),
                "b": rng.choice(TEXTS),
                "p": rng.choice(PARTITIONS),
                "v": rng.choice([None, *range(6)]),
                "spot": rng.choice([None, {"y": None}, {"y": rng.randint(0, 5)}]),
                **{name: rng.choice([None, 1, 2]) for name in self.fields},
            }
            for _ in range(count)
        ]

    def step(self) -> None:
        verbs = [self.append] * 3 + [self.merge] * 6
        verbs += [self.rerun, self.delete, self.compact, self.add_field]
        self.rng.choice(verbs)()

    def append(self) -> None:
        rows, run = self.new_rows(self.rng.randint(1, 8)), self.rng.choice(RUNS)
        self.told.append(f"append {len(rows)} of {run}")
        self.dataset.with_options(write=self._options()).append(rows, run=run)
        self.rows += [{**row, "run": run} for row in rows]

    def _options(self) -> lakebed.WriteOptions:
        return lakebed.WriteOptions(target_bytes=self.rng.choice([1, 10**6]))

    def rerun(self) -> None:
        rows, run = self.new_rows(self.rng.randint(0, 4)), self.rng.choice(RUNS[1:])
        self.told.append(f"rerun {len(rows)} of {run}")
        self.dataset.rerun(rows, run, replace_all=True)
        self.rows = [row for row in self.rows if row["run"] != run]
        self.rows += [{**row, "run": run} for row in rows]

    def delete(self) -> None:
        sql, is_met = self.rng.choice(VIEWS)
        self.told.append(f"delete {sql}")
        self.dataset.where(sql).delete()
        self.rows = [row for row in self.rows if is_met(row) is not True]

    def compact(self) -> None:
        self.told.append("compact")
        self.dataset.compact()

    def add_field(self) -> None:
        if len(self.fields) == 2:
            return
        name = f"f{len(self.fields)}"
        self.told.append(f"add {name}")
        snapshot = self.dataset.snapshot()
        old = snapshot.descriptor
        fields = (*old.schema.fields, Field(name=name, type=Primitive(Kind.LONG)))
        self.dataset.evolve(
            lakebed.DatasetDescriptor(
                schema=Schema(fields=fields),
                partition_by=old.partition_by,
                index=old.index,
                format=old.format,
            ),
            base=snapshot,
        )
        self.fields.append(name)
        self.rows = [{**row, name: None} for row in self.rows]

    def meddle(self) -> None:
        """Let somebody append, or compact, while the next merge is under way."""
        rows = self.new_rows(self.rng.randint(1, 4))
        is_compacting = self.rng.random() < 0.2
        self.store.before = self.rng.choice(["head", "file"])

        def act() -> None:
            if is_compacting:
                self.told.append("... beside a compaction")
                self.beside.compact()
                return
            self.told.append(f"... beside an append of {len(rows)}")
            self.beside.append(rows)
            self.rows += [{**row, "run": None} for row in rows]

        self.store.act = act

    def merge(self) -> None:
        rng = self.rng
        on = rng.choice([("a",), ("b",), ("a", "b"), ("b", "p")])
        data = [
            {**row, "op": rng.choice([None, "U", "D"])} for row in self.new_rows(rng.randint(0, 6))
        ]
        if rng.random() < 0.9:
            by_key = {key_of(row, on) or id(row): row for row in data}
            data = list(by_key.values())
        given: dict[str, Any] = {}
        clauses = _Clauses(rng, given)
        view: lakebed.View = self.dataset
        if rng.random() < 0.2:
            sql, clauses.is_inside = rng.choice(VIEWS)
            view = self.dataset.where(sql)
        if not any("source.op" in str(value) for value in given.values()):
            data = [{name: value for name, value in row.items() if name != "op"} for row in data]
        run = rng.choice(RUNS)
        if rng.random() < 0.3:
            self.meddle()
        self.told.append(f"merge {data} on {on} into {view!r} of {run}: {given}")
        keys = [key_of(row, on) for row in data if key_of(row, on) is not None]
        form: Any = data
        if data and rng.random() < 0.5:
            names = list(data[0])
            fields = [SCHEMA.field(n) if n in SCHEMA.names else _extra(n) for n in names]
            form = pa.Table.from_pylist(data, schema=pa.schema(fields))
        try:
            report = view.with_options(write=self._options()).merge(form, on, run=run, **given)
        except DuplicateKeyError:
            assert len(keys) > len(set(keys)), self.told
            self.store.act = None
            return
        except InvalidInputError as exc:
            if "would delete all rows" in str(exc):
                assert not data, self.told
                assert given["missing"] == "delete", self.told
                assert "missing_where" not in given, self.told
                self.store.act = None
                return
            if "outside the view" not in str(exc):
                raise
            assert clauses.applied(self.rows, data, on, run, set(SCHEMA.names))[1], self.told
            self.store.act = None
            return
        self.store.act = None
        assert len(keys) == len(set(keys)), self.told
        names = set(data[0]) if data else set()
        expected, is_outside, counts = clauses.applied(self.rows, data, on, run, names)
        assert not is_outside, self.told
        told = (report.inserted_row_count, report.updated_row_count, report.deleted_row_count)
        assert told == counts, self.told
        assert (report.commit is None) == (counts == (0, 0, 0)), self.told
        self.rows = expected

    def check(self) -> None:
        have = self.dataset.arrow().to_pylist()
        names = [*SCHEMA.names, *self.fields]
        expected = [{name: row.get(name) for name in names} for row in self.rows]
        assert _counted(have) == _counted(expected), "\n".join(self.told)

    def check_sound(self) -> None:
        report = self.beside.check()
        assert report.is_ok, (report, self.told)


def _extra(name: str) -> pa.Field:
    return pa.field(name, pa.string() if name == "op" else pa.int64())


def _counted(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


class _Clauses:
    """Some clauses of a merge: as keywords, and as what they do."""

    def __init__(self, rng: random.Random, given: dict[str, Any]) -> None:
        self.matched = given["matched"] = rng.choice(["update"] * 4 + ["delete", "ignore"])
        self.not_matched = given["not_matched"] = rng.choice(["insert"] * 3 + ["ignore"])
        self.missing = given["missing"] = rng.choice(["keep"] * 4 + ["delete", "update"])
        self.is_inside: Callable[[Row], Truth] = lambda _: True
        self.update: Callable[[Row, Row], Row] | None = None
        self.columns: list[str] | None = None
        self.update_where = self._maybe(
            rng, given, "update_where", CONDITIONS, self.matched == "update"
        )
        self.delete_where = self._maybe(
            rng, given, "delete_where", CONDITIONS, self.matched != "ignore"
        )
        self.insert_where = self._maybe(
            rng, given, "insert_where", OF_SOURCE, self.not_matched == "insert"
        )
        self.missing_where = self._maybe(
            rng, given, "missing_where", OF_TARGET, self.missing != "keep"
        )
        if self.matched == "update" and rng.random() < 0.5:
            if rng.random() < 0.5:
                self.columns = given["update"] = rng.sample(["v", "p", "spot"], 2)
            else:
                given["update"], self.update = rng.choice(VALUES)
        self.reset: Callable[[Row], Row] = lambda _: {}
        if self.missing == "update":
            given["missing_update"], self.reset = rng.choice(OF_ONE)

    @staticmethod
    def _maybe(
        rng: random.Random, given: dict[str, Any], name: str, some: Any, is_used: bool
    ) -> Any:
        if not is_used or rng.random() < 0.5:
            return None
        given[name], is_met = rng.choice(some)
        return is_met

    def applied(
        self,
        rows: list[Row],
        data: list[Row],
        on: tuple[str, ...],
        run: str | None,
        names: set[str],
    ) -> tuple[list[Row], bool, tuple[int, int, int]]:
        """Return what becomes of rows, whether one would be outside the view, and the counts."""
        by_key = {key_of(row, on): row for row in data if key_of(row, on) is not None}
        result: list[Row] = []
        matched: set[Any] = set()
        is_outside = False
        inserted = updated = deleted = 0
        for row in rows:
            key = key_of(row, on)
            if self.is_inside(row) is not True:
                result.append(row)
                continue
            new: Row | None = row
            if key is not None and key in by_key:
                matched.add(key)
                source = {"op": None, **by_key[key]}
                new = self._matched(row, source, names)
            elif self.missing != "keep" and (
                self.missing_where is None or self.missing_where(row) is True
            ):
                new = None if self.missing == "delete" else {**row, **self.reset(row)}
            if new is None:
                deleted += 1
                continue
            if new is not row:
                updated += 1
                is_outside |= self.is_inside(new) is not True
            result.append(new)
        for row in data:
            key = key_of(row, on)
            source = {"op": None, **row}
            is_new = key is None or key not in matched
            if is_new and self.not_matched == "insert" and (
                self.insert_where is None or self.insert_where(source) is True
            ):  # fmt: skip
                inserted += 1
                own = {name: value for name, value in row.items() if name != "op"}
                is_outside |= self.is_inside(own) is not True
                result.append({**own, "run": run})
        return result, is_outside, (inserted, updated, deleted)

    def _matched(self, row: Row, source: Row, names: set[str]) -> Row | None:
        is_deleted = (
            self.matched == "delete"
            if self.delete_where is None
            else self.delete_where(row, source) is True
        )
        if is_deleted:
            return None
        if self.matched != "update":
            return row
        if self.update_where is not None and self.update_where(row, source) is not True:
            return row
        if self.update is not None:
            return {**row, **self.update(row, source)}
        wanted = self.columns if self.columns is not None else [n for n in names if n != "op"]
        return {**row, **{name: source[name] for name in wanted}}

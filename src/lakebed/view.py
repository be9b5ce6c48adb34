"""Views: a dataset narrowed by constraints. Reading works on them."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakebed.arrow import scan
from lakebed.errors import (
    InvalidInputError,
    MissingDependencyError,
    PredicateError,
    VersionNotFoundError,
)
from lakebed.model.dataclass_types import builder
from lakebed.model.evaluate import matches
from lakebed.model.predicate import (
    TRUE,
    And,
    Comparison,
    Dnf,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    all_of,
    bind,
    columns_of,
    from_dnf,
)
from lakebed.model.sql import parse_sql
from lakebed.model.values import Scalar
from lakebed.plan.plan import ScanPlan, plan
from lakebed.state import history
from lakebed.state.reader import read_head
from lakebed.state.state import State, descriptor_from
from lakebed.store.base import Store

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.spark.read import Way


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, and the requests that reading it took."""

    state: State
    requests: int


class Source:
    """Where a view gets the state from: the head, each time anew, or one version for good."""

    def __init__(self, store: Store, name: str, pinned: Snapshot | None = None) -> None:
        self.store = store
        self.name = name
        self.pinned = pinned
        self._seen = pinned

    def load(self) -> Snapshot:
        """Return the state to work on: the current one, unless a version is pinned.

        Cost:
            One GET (two for a msgpack head), or nothing if pinned.
        """
        if self.pinned is not None:
            return self.pinned
        head = read_head(self.store, self.name)
        self._seen = Snapshot(head.state, head.requests)
        return self._seen

    def remember(self, snapshot: Snapshot) -> None:
        """Note a state that somebody else has read."""
        self._seen = snapshot

    def seen(self) -> State:
        """Return the last state that was read, for checks that need no newer one."""
        return (self._seen or self.load()).state

    def at_version(self, version: int) -> Source:
        """Return a source of one version.

        Raises:
            VersionNotFoundError: There is no such version.

        Cost:
            The history: one GET a segment, of which there are few.
        """
        snapshot = self.load()
        state = snapshot.state
        if version > state.version:
            raise VersionNotFoundError(
                f"Dataset {self.name!r} has no version {version}.",
                hint=f"The last one is {state.version}.",
            )
        if version == state.version and not state.is_changed_by_others:
            return Source(self.store, self.name, snapshot)
        past = history.replay(history.read(self.store, state.history), version)
        older = dataclasses.replace(
            state,
            labels=past.labels,
            descriptor=descriptor_from(past.descriptor, f"{self.name}/history"),
            version=version,
            commit_id=past.entry.commit_id,
            committed_at=past.entry.committed_at,
        )
        requests = snapshot.requests + len(state.history)
        return Source(self.store, self.name, Snapshot(older, requests))


class View:
    """A dataset narrowed by constraints. Immutable; every refinement gives another view.

    Every call that reads starts from the current head, so that a view shows commits as they
    come, and each result is of one version.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-view").create("numbers", descriptor)
    >>> commit = numbers.append([{"n": n} for n in range(10)])
    >>> view = numbers.where("n > 3").to("n", 6)
    >>> view
    <View of 'numbers': n > 3 AND n <= 6>
    >>> view.count()
    3
    """

    def __init__(self, source: Source, constraint: Predicate = TRUE) -> None:
        """Use `Dataset.where` and its like instead."""
        self._source = source
        self._constraint = constraint

    def __repr__(self) -> str:
        return f"<View of {self._source.name!r}: {self._constraint}>"

    @property
    def constraint(self) -> Predicate:
        """What narrows the view; prints as SQL."""
        return self._constraint

    def is_of(self, other: View) -> bool:
        """Whether both are views of one dataset, at whatever version."""
        mine, others = self._source, other._source
        return mine.name == others.name and mine.store.uri == others.store.uri

    def where(self, predicate: str | Dnf | Predicate) -> View:
        """Narrow the view.

        Args:
            predicate: SQL text, such as `"carrier = 'UA' AND time_hour >= '2013-06-01'"`; or
                Kartothek's lists, such as `[[("carrier", "==", "UA")]]`, an OR of ANDs; or a
                predicate. Fields and partition fields may stand in it, `batch_id` among them.

        Raises:
            PredicateError: It cannot be read, names an unknown column, or a value is not of
                its column's type.
        """
        types = self._source.seen().column_types
        if isinstance(predicate, str):
            found = parse_sql(predicate, types)
        elif isinstance(predicate, Comparison | Membership | NullCheck | And | Or):
            found = bind(predicate, types)
        else:
            found = bind(from_dnf(predicate), types)
        return View(self._source, all_of([self._constraint, found]))

    def with_(self, field: str, *values: Scalar) -> View:
        """Keep entities whose field has one of the values; without values, has any.

        Raises:
            PredicateError: The field is unknown, or a value is not of its type or is not in
                the view.
        """
        if not values:
            return self.where(NullCheck(field, negated=True))
        self._check_inside(field, values)
        return self.where(Membership(field, values))

    def from_(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at least `value`; raises as `with_` does."""
        return self._compare(field, Op.GE, value)

    def from_after(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is greater than `value`; raises as `with_` does."""
        return self._compare(field, Op.GT, value)

    def to(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at most `value`; raises as `with_` does."""
        return self._compare(field, Op.LE, value)

    def to_before(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is less than `value`; raises as `with_` does."""
        return self._compare(field, Op.LT, value)

    def _compare(self, field: str, op: Op, value: Scalar) -> View:
        self._check_inside(field, (value,), edge=op)
        return self.where(Comparison(field, op, value))

    def _check_inside(self, field: str, values: tuple[Scalar, ...], edge: Op | None = None) -> None:
        """A refinement must lie in the view, or it was not meant: Kite's rule.

        The end of an open range need not be in the view itself, if it is an end of the view.
        """
        types = self._source.seen().column_types
        bound = bind(Membership(field, values), types)
        constraint = self._constraint
        parts = constraint.parts if isinstance(constraint, And) else (constraint,)
        for part in parts:
            if columns_of(part) != (field,):
                continue
            for value in bound.values:  # type: ignore[union-attr]  # bind keeps the node
                at_end = edge in (Op.GT, Op.LT) and isinstance(part, Comparison)
                if at_end and part.op is edge and part.value == value:  # type: ignore[union-attr]  # checked
                    continue
                if not matches(part, {field: value}):
                    raise PredicateError(
                        f"{field} = {value!r} is outside the view, where {part}.",
                        hint="A refinement narrows; begin from the dataset for another view.",
                    )

    def plan(self) -> ScanPlan:
        """Choose the data files to read.

        Returns:
            The plan, which says by `explain()` what was kept and dropped, and why.

        Cost:
            A read of the head, and nothing else.
        """
        snapshot = self._source.load()
        constraint = bind(self._constraint, snapshot.state.column_types)
        return plan(snapshot.state, constraint, requests=snapshot.requests)

    def spark(
        self,
        spark: SparkSession | None = None,
        columns: Sequence[str] | None = None,
        *,
        way: Way = "auto",
    ) -> DataFrame:
        """Return the view as a Spark DataFrame of one version.

        Args:
            spark: The session; else the active one, else one started in this process.
            columns: Fields or partition fields, `batch_id` among them; None for all fields.
            way: `native` (Spark's own reader), `arrow` (through mapInArrow), or `auto`.

        Raises:
            MissingDependencyError: pyspark or Java is not installed.
            SchemaMismatchError: A column is unknown.

        Cost:
            A read of the head; no Spark job until the DataFrame is used.
        """
        # Spark is imported where it is asked for: `import lakebed` needs none.
        from lakebed.spark.read import read_frame
        from lakebed.spark.session import get_session

        session = get_session(spark)
        return read_frame(session, self._source.store, self.plan(), columns, way=way)

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the view as an Arrow table, read in this process.

        Raises:
            SchemaMismatchError: A column is unknown.
            CorruptMetadataError: A data file is missing or damaged.

        Cost:
            A read of the head, then the row groups that can match. Memory: the whole result.
        """
        return self.batches(columns).read_all()

    def batches(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the view as a stream of record batches; as `arrow`, but of a few row groups."""
        return scan.scan(self._source.store, self.plan(), columns)

    def pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the view as a pandas DataFrame; as `arrow`.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        if importlib.util.find_spec("pandas") is None:
            raise MissingDependencyError.for_extra("pandas", "pandas", "View.pandas")
        frame: pd.DataFrame = self.arrow(columns).to_pandas()
        return frame

    def count(self) -> int:
        """Count the entities.

        Cost:
            A read of the head, and the footers of the planned files; the columns of the
            filter where a file may hold others.
        """
        return scan.count(self._source.store, self.plan())

    def reader(self, type: type | None = None) -> EntityReader:  # noqa: A002 - the word of API.md
        """Return an iterator over the entities, as dicts or as instances of a dataclass.

        Args:
            type: A dataclass; only its fields are read.

        Raises:
            InvalidInputError: `type` is no dataclass.
            SchemaMismatchError: It has a field that the dataset lacks.
        """
        if type is None:
            return EntityReader(self.batches(), None)
        if not dataclasses.is_dataclass(type):
            raise InvalidInputError(f"{type!r} is no dataclass.", hint="Decorate it.")
        names = [field.name for field in dataclasses.fields(type) if field.init]
        return EntityReader(self.batches(names), builder(type))


class EntityReader:
    """An iterator over entities; also a context manager that closes the files."""

    def __init__(
        self, batches: pa.RecordBatchReader, build: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        """Use `View.reader` instead."""
        self._batches = batches
        self._entities = self._read(build)

    def _read(self, build: Callable[[dict[str, Any]], Any] | None) -> Iterator[Any]:
        for batch in self._batches:
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield row if build is None else build(row)

    def __iter__(self) -> Iterator[Any]:
        return self._entities

    def __next__(self) -> Any:
        return next(self._entities)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; further reads end at once."""
        self._entities = iter(())
        self._batches.close()

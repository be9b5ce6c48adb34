"""Views: what belongs to them, writing through them, and their ready signals."""

import dataclasses
import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from effort import examples
from heads import ON_TREES
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, View, by
from lakebed.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    PartitionSpecError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
)
from lakebed.model.predicate import Predicate
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("carrier", pa.string()),
        pa.field("delay", pa.float64()),
        pa.field("position", pa.struct([("latitude", pa.float64()), ("code", pa.string())])),
        pa.field("n", pa.int64()),
    ]
)
NAN = float("nan")


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def make(store: Store, *functions: Any, name: str = "flights") -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=list(functions))
    return Repository(store).create(name, descriptor)


@pytest.fixture
def flights(store: Store) -> Dataset:
    return make(store, by.date("ts", name="dt"), by.identity("carrier"))


def row(n: int, *, day: int = 1, carrier: str | None = "UA", **others: Any) -> dict[str, Any]:
    position = {"latitude": 1.0, "code": "a"}
    ts = dt.datetime(2013, 1, day, tzinfo=UTC)
    return {"ts": ts, "carrier": carrier, "delay": 0.5, "position": position, "n": n, **others}


def numbers(view: View) -> list[int]:
    return sorted(view.arrow(["n"])["n"].to_pylist())


def requests(counting: CountingStore) -> int:
    counts = dataclasses.asdict(counting.counts)
    return sum(count for name, count in counts.items() if not name.startswith("bytes"))


def objects(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


# Refinements


@pytest.mark.parametrize(
    ("refine", "sql"),
    [
        (lambda d: d.kite.with_("n", 5, 6, 7).kite.with_("n", 6), "n IN (6)"),
        (lambda d: d.kite.from_("n", 1).kite.to("n", 9).kite.with_("n", 6), "n IN (6)"),
        (lambda d: d.where("n > 1 OR n = 0").kite.with_("n", 0, 6), "n IN (0, 6)"),
        (lambda d: d.kite.with_("n", 5, 6, 7).kite.from_after("n", 6), "n IN (7)"),
        (lambda d: d.where("n = 5").kite.from_("n", 5), "n IN (5)"),
        (lambda d: d.kite.with_("n", 5).kite.from_after("n", 5), "FALSE"),
        (lambda d: d.kite.from_("n", 3).kite.from_("n", 4), "n >= 4"),
        (lambda d: d.kite.from_("n", 3).kite.from_after("n", 3), "n > 3"),
        (lambda d: d.kite.to("n", 9).kite.from_("n", 3), "n >= 3 AND n <= 9"),
        (lambda d: d.kite.with_("n").kite.from_("n", 3), "n >= 3"),
        (lambda d: d.kite.from_("n", 3).kite.with_("n"), "n >= 3"),
        (lambda d: d.kite.with_("n").kite.with_("n"), "n IS NOT NULL"),
        (
            lambda d: d.kite.with_("n", 5, 6).kite.with_("carrier", "UA").kite.with_("n", 6),
            "n IN (6) AND carrier IN ('UA')",
        ),
        (
            lambda d: d.kite.from_("position.latitude", 1).kite.to_before("position.latitude", 2),
            "position.latitude >= 1.0 AND position.latitude < 2.0",
        ),
    ],
)
def test_refinement_narrows_and_a_set_replaces(
    flights: Dataset, refine: Callable[[View], View], sql: str
) -> None:
    assert str(refine(flights).constraint) == sql


@pytest.mark.parametrize(
    "refine",
    [
        lambda d: d.kite.from_("n", 5).kite.from_("n", 4),
        lambda d: d.kite.from_after("n", 5).kite.from_("n", 5),
        lambda d: d.kite.with_("n", 5, 6).kite.to("n", 7),
        lambda d: d.kite.with_("n", 5, 6).kite.with_("n", 6, 7),
        lambda d: d.where("n IS NULL").kite.with_("n"),
        lambda d: d.kite.to("position.code", "b").kite.with_("position.code", "c"),
    ],
)
def test_refinement_outside_the_view_is_refused(
    flights: Dataset, refine: Callable[[View], View]
) -> None:
    with pytest.raises(PredicateError, match="outside the view"):
        refine(flights)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 5.0),
        ("n", "5"),
        ("n", True),
        ("n", None),
        ("carrier", 5),
        ("dt", "2013-01-01"),
        ("position", 5),
        ("position.latitude", "5"),
        ("position.longitude", 5.0),
        ("nn", 5),
    ],
)
@pytest.mark.parametrize("verb", ["with_", "from_", "from_after", "to", "to_before"])
def test_refinement_is_strict_about_names_and_types(
    flights: Dataset, verb: str, field: str, value: Any
) -> None:
    with pytest.raises(PredicateError, match=f"'{field}'"):
        getattr(flights.kite, verb)(field, value)


CONDITIONS = st.one_of(
    st.builds(
        "n {} {}".format,
        st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]),
        st.integers(0, 6),
    ),
    st.builds(
        lambda is_in, values: f"n {is_in} ({', '.join(map(str, values))})",
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True),
    ),
    st.sampled_from(
        ["n IS NULL", "n IS NOT NULL", "n < 4 OR n IS NULL", "n = 3 OR carrier = 'UA'"]
    ),
)
REFINEMENTS = st.sampled_from(["with_", "from_", "from_after", "to", "to_before"])
MEANINGS: dict[str, Callable[[Any, int], bool]] = {
    "with_": lambda n, value: n == value,
    "from_": lambda n, value: n >= value,
    "from_after": lambda n, value: n > value,
    "to": lambda n, value: n <= value,
    "to_before": lambda n, value: n < value,
}
NARROWED = make(MemoryStore(uuid.uuid4().hex))


@examples(3)
@given(
    conditions=st.lists(CONDITIONS, min_size=1, max_size=3),
    verb=REFINEMENTS,
    value=st.integers(0, 6),
)
def test_refinement_gives_what_lies_in_the_view_and_in_itself(
    conditions: list[str], verb: str, value: int
) -> None:
    view: View = NARROWED
    for condition in conditions:
        view = view.where(condition)
    try:
        refined = getattr(view.kite, verb)("n", value)
    except PredicateError:
        return

    for entity in [{"n": n, "carrier": c} for n in (None, *range(7)) for c in ("UA", "B6")]:
        n = entity["n"]
        is_meant = view.kite.includes(entity) and n is not None and MEANINGS[verb](n, value)
        assert refined.kite.includes(entity) is is_meant


def test_delete_through_a_refined_set_leaves_what_the_view_leaves_out(store: Store) -> None:
    dataset = make(store, by.identity("carrier"))
    dataset.append([{"n": n, "carrier": str(n)} for n in (1, 2, 3, 4)])
    view = dataset.where("n IN (1, 2, 3) AND n <> 2")

    view.kite.to("n", 3).delete()

    assert numbers(dataset) == [2, 4]


# What belongs to a view

VALUES: dict[str, list[Any]] = {
    "n": [0, 1, 2, -5],
    "carrier": ["", "UA", "é"],
    "delay": [0.0, -0.0, 1.5, NAN, float("inf")],
    "position.latitude": [0.0, 1.5, NAN],
    "position.code": ["a", "b"],
    "dt": [dt.date(2013, 1, 1), dt.date(2013, 1, 2)],
    "ts": [dt.datetime(2013, 1, 1, tzinfo=UTC), dt.datetime(2013, 1, 2, 12, tzinfo=UTC)],
}


def maybe(name: str) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(VALUES[name])


ENTITIES = st.fixed_dictionaries(
    {
        "ts": maybe("ts"),
        "carrier": maybe("carrier"),
        "delay": maybe("delay"),
        "position": st.none()
        | st.fixed_dictionaries(
            {"latitude": maybe("position.latitude"), "code": maybe("position.code")}
        ),
    }
)


@examples(0.6)
@given(
    entities=st.lists(ENTITIES, min_size=1, max_size=20),
    predicate=predicates(VALUES, max_leaves=5),
    is_by_carrier=st.booleans(),
    row_group_bytes=st.sampled_from([1, 2**20]),
)
def test_view_reads_exactly_the_entities_that_it_includes(
    entities: list[dict[str, Any]],
    predicate: Predicate,
    is_by_carrier: bool,
    row_group_bytes: int,
) -> None:
    functions = [by.date("ts", name="dt"), *([by.identity("carrier")] if is_by_carrier else [])]
    flights = make(MemoryStore(uuid.uuid4().hex), *functions)
    rows = [{**entity, "n": n} for n, entity in enumerate(entities)]
    # Row groups of one row and of all: bounds that speak for little, and for much.
    flights.with_options(write=lakebed.WriteOptions(row_group_bytes=row_group_bytes)).append(rows)
    view = flights.where(predicate)

    included = [one["n"] for one in rows if view.kite.includes(one)]

    assert numbers(view) == included
    assert view.count() == len(included)
    assert view.kite.is_empty() is (included == [])
    covering = view.kite.covering_partitions()
    assert set(included) <= {n for partition in covering for n in numbers(partition)}


@examples(0.6)
@given(
    entities=st.lists(ENTITIES, min_size=1, max_size=8),
    predicate=predicates(VALUES, max_leaves=5),
    is_by_carrier=st.booleans(),
)
def test_writer_of_a_view_takes_exactly_the_entities_that_it_includes(
    entities: list[dict[str, Any]], predicate: Predicate, is_by_carrier: bool
) -> None:
    functions = [by.date("ts", name="dt"), *([by.identity("carrier")] if is_by_carrier else [])]
    flights = make(MemoryStore(uuid.uuid4().hex), *functions)
    view = flights.where(predicate)
    taken = []

    with view.kite.writer() as writer:
        for n, entity in enumerate(entities):
            row = {**entity, "n": n}
            try:
                writer.write(row)
            except InvalidInputError:
                assert not view.kite.includes(row)
            else:
                assert view.kite.includes(row)
                taken.append(n)

    assert numbers(flights) == taken


def test_entity_without_a_field_has_null_there(flights: Dataset) -> None:
    view = flights.where("carrier IS NULL AND position.code IS NULL")

    assert view.kite.includes({"n": 1})
    assert view.kite.includes({"n": 1, "position": {"latitude": 2.0}})
    assert not view.kite.includes({"n": 1, "carrier": "UA"})


def test_partition_values_of_an_entity_are_computed(flights: Dataset) -> None:
    view = flights.kite.with_("dt", dt.date(2013, 1, 2))

    assert view.kite.includes(row(1, day=2))
    assert not view.kite.includes(row(1, day=1))
    assert not flights.where("batch_id > 0").kite.includes(row(1))


@pytest.mark.parametrize(
    ("entity", "error"),
    [
        ({"carier": "UA"}, SchemaMismatchError),
        ({"carrier": 5}, InvalidInputError),
        ({"position": {"latitude": "north"}}, InvalidInputError),
        (5, InvalidInputError),
    ],
)
def test_what_is_no_entity_of_the_dataset_is_an_error(
    flights: Dataset, entity: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        flights.kite.with_("carrier", "UA").kite.includes(entity)


# Partitions


def test_covering_partitions_are_disjoint_views_in_path_order_and_need_the_head_only() -> None:
    counting = CountingStore(MemoryStore(uuid.uuid4().hex))
    flights = make(counting, by.date("ts", name="dt"), by.identity("carrier"))
    rows = [row(1), row(2, day=2), row(3, carrier=None), row(4, carrier="AA"), row(5, day=3)]
    flights.append(rows)
    flights.append([row(6)])
    counting.reset()

    covering = flights.where("ts < '2013-01-02T12:00:00' AND n > 3").kite.covering_partitions()

    assert requests(counting) == (2 if ON_TREES else 1)  # the head, and the labels of a leaf
    day = dt.date(2013, 1, 1)
    assert [one.values for one in covering] == [
        {"dt": day, "carrier": "AA"},
        {"dt": day, "carrier": "UA"},
        {"dt": day, "carrier": None},
        {"dt": dt.date(2013, 1, 2), "carrier": "UA"},
    ]
    assert [one.path for one in covering] == sorted(one.path for one in covering)
    assert [numbers(one) for one in covering] == [[4], [1, 6], [3], [2]]
    assert all(one.kite.is_aligned() for one in covering)


@pytest.mark.parametrize("float_type", [pa.float32(), pa.float64()], ids=str)
def test_covering_partitions_are_disjoint_also_for_the_two_zeros(
    store: Store, float_type: pa.DataType
) -> None:
    schema = pa.schema({"f": float_type, "n": pa.int64()})
    dataset = Repository(store).create("f", DatasetDescriptor(schema=schema, partition_by="f"))

    dataset.append([{"f": 0.0, "n": 1}, {"f": -0.0, "n": 2}, {"f": NAN, "n": 3}])
    with dataset.kite.writer() as writer:
        writer.write({"f": -0.0, "n": 4})

    covering = dataset.kite.covering_partitions()
    assert [numbers(one) for one in covering] == [[1, 2, 4], [3]]
    assert numbers(dataset.where("f = -0.0")) == [1, 2, 4]
    assert sorted(str(one) for one in dataset.arrow()["f"].to_pylist())[:2] == ["-0.0", "-0.0"]


def test_unpartitioned_dataset_is_covered_by_one_partition(store: Store) -> None:
    plain = make(store)
    assert plain.kite.covering_partitions() == ()

    plain.append([row(1)])

    (only,) = plain.where("n > 5").kite.covering_partitions()
    assert (only.path, only.values, numbers(only)) == ("", {}, [1])


YEAR_MONTH_DAY = [by.year("ts"), by.month("ts"), by.day("ts"), by.identity("carrier")]
MIDNIGHT = dt.datetime(2013, 9, 1, tzinfo=UTC)
NOON = MIDNIGHT + dt.timedelta(hours=12)
MICROSECOND = dt.timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("refine", "is_aligned"),
    [
        (lambda d: d, True),
        (lambda d: d.kite.from_("ts", MIDNIGHT), True),
        (lambda d: d.kite.to_before("ts", MIDNIGHT), True),
        (lambda d: d.kite.to("ts", MIDNIGHT - MICROSECOND), True),
        (lambda d: d.kite.with_("carrier", "a", "b", "c"), True),
        (lambda d: d.kite.with_("year", 2013).kite.with_("month", 9).kite.with_("day", 1), True),
        (lambda d: d.kite.from_("ts", NOON), False),
        (lambda d: d.kite.from_after("ts", MIDNIGHT), False),
        (lambda d: d.kite.to("ts", MIDNIGHT), False),
        (
            lambda d: (
                d.kite.with_("year", 2013)
                .kite.with_("month", 9)
                .kite.with_("day", 1)
                .kite.from_("ts", NOON)
            ),
            False,
        ),
        (lambda d: d.kite.with_("delay", 0.5), False),
        (lambda d: d.where("position.code = 'a'"), False),
    ],
)
def test_alignment_is_that_of_kite(
    store: Store, refine: Callable[[View], View], is_aligned: bool
) -> None:
    assert refine(make(store, *YEAR_MONTH_DAY)).kite.is_aligned() is is_aligned


def test_hash_of_a_field_is_not_aligned_with_it(store: Store) -> None:
    assert not make(store, by.hash("carrier", 32)).kite.with_("carrier", "UA").kite.is_aligned()


def test_emptiness_is_found_with_little_reading() -> None:
    counting = CountingStore(MemoryStore(uuid.uuid4().hex))
    flights = make(counting, by.date("ts", name="dt"))
    for n in range(5):
        flights.append([row(n, day=n + 1)])
    PROCESS_CACHE.clear()
    counting.reset()

    assert flights.where("dt = '2014-01-01'").kite.is_empty()

    assert requests(counting) == (2 if ON_TREES else 1)  # the head, and the totals of a leaf
    counting.reset()

    assert not flights.where("n >= 0").kite.is_empty()

    # The head, and what each of the commits says of its file; or the leaf of four commits.
    assert requests(counting) == (3 if ON_TREES else 6)


# Writing through a view


def write_all(view: View, rows: list[dict[str, Any]]) -> None:
    with view.kite.writer() as writer:
        for one in rows:
            writer.write(one)


OUTSIDE = [
    # The first rows of a partition are inside: Kite looked no further.
    ("n < 5", [row(1), row(2), row(7)], r"n = 7"),
    ("carrier = 'UA'", [row(1), row(2, carrier=None)], "carrier = NULL"),
    ("dt = '2013-01-01'", [row(1), row(2, day=2)], "dt = '2013-01-02'"),
    ("delay < 1", [row(1), row(2, delay=NAN)], "delay = 'nan'"),
    ("position.latitude < 5", [row(1), row(2, position=None)], "position.latitude = NULL"),
    ("batch_id > 0", [row(1)], "batch_id = NULL"),
    ("FALSE", [row(1)], "outside the view FALSE"),
]


@pytest.mark.parametrize(("text", "rows", "message"), OUTSIDE)
@pytest.mark.parametrize("write", [View.append, write_all], ids=["append", "writer"])
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_every_entity_outside_the_view_is_refused_and_nothing_is_left(
    store: Store, text: str, rows: list[Any], message: str, write: Any, is_partitioned: bool
) -> None:
    flights = make(store, *([by.date("ts", name="dt")] if is_partitioned else []))
    text = text if is_partitioned or "dt" not in text else "ts < '2013-01-02'"
    message = message if is_partitioned or "dt" not in message else "ts = "
    flights.append([row(0)])
    before = objects(store)

    with pytest.raises(InvalidInputError, match=message):
        write(flights.where(text), rows)

    assert objects(store) == before
    assert flights.version == 1


def test_view_takes_what_belongs_to_it(flights: Dataset) -> None:
    view = flights.kite.from_("ts", dt.datetime(2013, 1, 2, tzinfo=UTC)).kite.with_(
        "carrier", "UA", "B6"
    )

    view.append([row(1, day=2), row(2, day=3, carrier="B6")])
    write_all(view, [row(3, day=4)])

    assert numbers(view) == numbers(flights) == [1, 2, 3]


@pytest.mark.parametrize(
    "data",
    [
        lambda rows: pa.Table.from_pylist(rows, SCHEMA),
        lambda rows: pa.Table.from_pylist(rows, SCHEMA).to_reader(max_chunksize=2),
        lambda rows: iter(rows),
    ],
    ids=["table", "reader", "iterator"],
)
def test_entity_outside_is_found_in_any_form_of_data(
    flights: Dataset, data: Callable[[list[Any]], Any]
) -> None:
    rows = [row(n) for n in range(7)]

    with pytest.raises(InvalidInputError, match=r"outside the view n < 6: n = 6"):
        flights.where("n < 6").append(data(rows))

    assert flights.version == 0


def test_writer_goes_on_after_an_entity_outside(flights: Dataset) -> None:
    with flights.kite.from_("n", 2).kite.to("n", 3).kite.writer() as writer:
        writer.write(row(2))
        for n in (1, 4):
            with pytest.raises(InvalidInputError, match=f"An entity lies outside.*n = {n}"):
                writer.write(row(n))
        writer.write(row(3))

    assert numbers(flights) == [2, 3]


def test_overwrite_of_a_view_replaces_it_and_refuses_the_rest(flights: Dataset) -> None:
    flights.append([row(1), row(2, day=2)])
    first_day = flights.kite.with_("dt", dt.date(2013, 1, 1))

    with pytest.raises(InvalidInputError, match="1 of 2 entities lie outside the view"):
        first_day.overwrite([row(3), row(4, day=2)])
    commit = first_day.overwrite([row(5, carrier="AA")])

    assert commit.operation == "overwrite"
    assert numbers(flights) == [2, 5]
    with pytest.raises(PredicateError, match="not aligned"):
        flights.where("n > 1").overwrite([])


def test_view_of_an_older_state_is_read_only(flights: Dataset) -> None:
    flights.append([row(1)])
    past = flights.at(version=1).where("n = 1")

    for write in (past.append, past.overwrite):
        with pytest.raises(ReadOnlyError):
            write([row(1)])
    for verb in (past.kite.writer, past.delete, past.kite.signal_ready):
        with pytest.raises(ReadOnlyError):
            verb()


# Provided partition fields


def test_view_supplies_the_value_of_a_provided_partition_field(store: Store) -> None:
    flights = make(store, by.provided("version", "int"))
    six, seven = flights.kite.with_("version", 6), flights.where("version = 7")

    six.append([row(1)])
    write_all(seven.kite.from_("n", 2), [row(2)])

    assert [one.path for one in flights.inspect.partitions()] == ["version=6", "version=7"]
    assert (numbers(flights), numbers(six), numbers(seven)) == ([1, 2], [1], [2])
    assert six.kite.includes(row(9))
    assert six.kite.includes(row(9, version=6))
    assert not six.kite.includes(row(9, version=7))
    assert not flights.kite.with_("version", 6, 7).kite.includes(row(9))
    six.overwrite([row(3)])
    assert numbers(flights) == [2, 3]


def test_write_without_a_value_for_a_provided_partition_field_is_refused(store: Store) -> None:
    flights = make(store, by.provided("version", "int"))
    before = objects(store)

    for view in (flights, flights.kite.with_("version", 6, 7), flights.kite.from_("version", 6)):
        with pytest.raises(PartitionSpecError, match=r"with_\('version'"):
            view.append([row(1)])

    assert objects(store) == before


def test_rows_keep_their_provided_value_where_others_are_deleted(store: Store) -> None:
    flights = make(store, by.provided("version", "int"))
    for version in (6, 7):
        flights.kite.with_("version", version).append([row(1), row(version)])

    flights.where("n = 1").delete()

    assert numbers(flights.kite.with_("version", 6)) == [6]
    assert numbers(flights.kite.with_("version", 7)) == [7]


# A job that must not run twice


def test_append_where_the_view_must_be_empty(flights: Dataset) -> None:
    flights.append([row(1)])
    day_1, day_2, day_3 = (flights.kite.with_("dt", dt.date(2013, 1, day)) for day in (1, 2, 3))
    day_3.kite.signal_ready()

    with pytest.raises(AlreadyExistsError, match="is not empty"):
        day_1.append([row(2)], if_not_empty="error")
    with pytest.raises(AlreadyExistsError, match="is ready"):
        day_3.append([row(3, day=3)], if_not_empty="error")
    with pytest.raises(InvalidInputError, match="if_not_empty"):
        day_2.append([row(2, day=2)], if_not_empty="overwrite")  # type: ignore[arg-type]
    day_2.append([row(2, day=2)], if_not_empty="error")

    assert numbers(flights) == [1, 2]
    day_1.append([row(4)])
    assert numbers(flights) == [1, 2, 4]


@pytest.mark.parametrize(("day", "is_conflict"), [(2, True), (3, False)])
def test_view_that_must_be_empty_stays_so_until_the_commit(
    flights: Dataset, day: int, is_conflict: bool
) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        flights.append([row(1, day=day)])  # another job, while this one writes
        yield row(2, day=2)

    view = flights.kite.with_("dt", dt.date(2013, 1, 2))

    if is_conflict:
        with pytest.raises(CommitConflictError):
            view.append(rows(), if_not_empty="error")
        assert numbers(flights) == [1]
    else:
        view.append(rows(), if_not_empty="error")
        assert numbers(flights) == [1, 2]


# Ready signals


def test_signal_is_of_exactly_one_view(flights: Dataset) -> None:
    view = flights.kite.with_("carrier", "UA", "B6").kite.from_("n", 3)
    assert (view.kite.is_ready(), view.kite.ready_at()) == (False, None)

    signalled = view.kite.signal_ready()

    assert view.kite.is_ready()
    assert view.kite.ready_at() == signalled
    assert signalled.tzinfo is UTC
    same = flights.kite.from_("n", 3).kite.with_("carrier", "B6", "UA")  # in another order
    assert same.kite.ready_at() == signalled
    for other in (
        flights,
        flights.kite.from_("n", 3),
        view.kite.to("n", 9),
        view.kite.with_("carrier", "UA"),
    ):
        assert not other.kite.is_ready()


def test_second_signal_is_later_than_the_first(flights: Dataset) -> None:
    first = flights.kite.signal_ready()

    second = flights.kite.signal_ready()

    assert second > first
    assert flights.kite.ready_at() == second


def test_signals_have_the_names_of_kite(flights: Dataset, store: Store) -> None:
    flights.kite.signal_ready()
    flights.kite.with_("n", 7, 3, 2).kite.signal_ready()
    flights.kite.to_before("n", 12).kite.signal_ready()
    flights.kite.with_("carrier", "a@b/c").kite.signal_ready()
    flights.where("n = 1 OR carrier IS NULL").kite.signal_ready()

    assert {info.key for info in store.list("flights/signals")} == {
        "flights/signals/unbounded",
        "flights/signals/n=2,3,7",
        "flights/signals/n=(,12)",
        "flights/signals/carrier=a%40b%2Fc",
        "flights/signals/%40where=n+%3D+1+OR+carrier+IS+NULL",
    }


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_signals_and_deletes_work_on_every_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, options = str(tmp_path), {}
    if kind == "s3":
        options = request.getfixturevalue("s3_options")
        url = f"s3://lake/{uuid.uuid4().hex}"
    flights = make(open_store(url, storage_options=options), by.identity("carrier"))
    view = (
        flights.kite.with_("carrier", "a@b/c", "~*[(")
        .kite.to("position.latitude", 5)
        .where("n != 1")
    )
    view.append([row(0, carrier="~*[("), row(2, carrier="~*[("), row(3, carrier="a@b/c")])

    assert view.kite.signal_ready() == view.kite.ready_at()
    opened = lakebed.open_uri(view.kite.uri, storage_options=options)
    assert isinstance(opened, View)
    assert opened.kite.is_ready()
    assert not flights.kite.is_ready()
    view.where("n = 2").delete()
    assert numbers(opened) == [0, 3]


def test_constraints_too_long_for_a_name_are_in_the_signal(flights: Dataset, store: Store) -> None:
    views = [flights.kite.with_("carrier", *(f"{name}{i}" for i in range(300))) for name in "ab"]

    views[0].kite.signal_ready()

    assert [view.kite.is_ready() for view in views] == [True, False]
    (info,) = store.list("flights/signals")
    assert len(info.key.rpartition("/")[2]) < 255
    assert "a299" in msgspec.json.decode(store.get(info.key).data)["constraints"]


def test_signals_go_with_the_dataset(flights: Dataset, store: Store) -> None:
    flights.kite.signal_ready()

    Repository(store).drop("flights")

    assert objects(store) == set()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"constraints": "n=1", "ready_at": "2013-01-01T00:00:00Z"}',
        b'{"constraints": "unbounded", "ready_at": "2013-01-01T00:00:00"}',
        b'{"constraints": "unbounded", "ready_at": "0001-01-01T00:00:00+14:00"}',
        b'{"constraints": "unbounded", "ready_at": "9999-12-31T23:59:59.999999Z"}',
        b'{"constraints": "unbounded\xff", "ready_at": "2013-01-01T00:00:00Z"}',
        b'{"other": ' * 50_000,
    ],
    ids=lambda data: repr(data[:60]),
)
def test_damaged_signal_is_named_and_signalling_again_mends_it(
    flights: Dataset, store: Store, data: bytes
) -> None:
    store.put("flights/signals/unbounded", data)

    with pytest.raises(CorruptMetadataError, match="flights/signals/unbounded"):
        flights.kite.is_ready()

    assert flights.kite.signal_ready() == flights.kite.ready_at()


# Nested columns


def test_nested_column_is_null_where_what_holds_it_is(flights: Dataset) -> None:
    rows = [
        row(1, position=None),
        row(2, position={"latitude": None, "code": "a"}),
        row(3, position={"latitude": NAN, "code": "a"}),
        row(4, position={"latitude": 2.0, "code": None}),
    ]
    flights.append(rows)

    assert numbers(flights.where("position.latitude IS NULL")) == [1, 2]
    assert numbers(flights.where("position.latitude > 1")) == [3, 4]
    assert numbers(flights.where("NOT position.latitude > 5")) == [4]
    assert numbers(flights.where("position.code = 'a'")) == [2, 3]
    assert numbers(flights.where([[("position.latitude", "==", None)]])) == [1, 2]
    assert numbers(flights.where("position IS NULL")) == [1]
    assert numbers(flights.kite.with_("position.code")) == [2, 3]


def test_deeply_nested_columns_have_names_of_any_length(store: Store) -> None:
    kind: pa.DataType = pa.int32()
    for name in "fedcb":
        kind = pa.struct([(name, kind)])
    descriptor = DatasetDescriptor(schema=pa.schema([("a", kind), ("n", pa.int64())]))
    deep = Repository(store).create("deep", descriptor)
    entities: list[dict[str, Any]] = [{"n": 0, "a": {"b": None}}]
    entities += [{"n": n, "a": {"b": {"c": {"d": {"e": {"f": n}}}}}} for n in (1, 2)]
    deep.append(entities)

    assert numbers(deep.where("a.b.c.d.e.f = 2")) == [2]
    assert numbers(deep.where("2 <= a.b.c.d.e.f")) == [2]
    assert numbers(deep.where("a.b.c IS NULL")) == [0]


@pytest.mark.parametrize("text", ["position.lat > 5", "n.x = 1", "other.latitude = 1"])
def test_unknown_nested_column_is_named(flights: Dataset, text: str) -> None:
    with pytest.raises(PredicateError, match=r"Unknown column '\w+\.\w+'"):
        flights.where(text)

"""URIs of repositories, datasets and views."""

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, View, open_uri
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    PredicateError,
    VersionNotFoundError,
)
from lakebed.model.predicate import Predicate, bind, conjuncts
from lakebed.model.uri import parse_constraints, parse_uri, view_query

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.int64()),
        pa.field("color", pa.string()),
        pa.field("value", pa.int32()),
        pa.field("flag", pa.bool_()),
        pa.field("ratio", pa.float32()),
        pa.field("x", pa.float64()),
        pa.field("blob", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("wall", pa.timestamp("us")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("position", pa.struct([("latitude", pa.float64()), ("code", pa.string())])),
        pa.field("where", pa.int32()),
    ]
)
DESCRIPTOR = DatasetDescriptor(schema=SCHEMA, partition_by="date(ts) as dt")
TYPES = DESCRIPTOR.predicate_types


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def dataset(lake: Repository) -> Dataset:
    return lake.create("test-name", DESCRIPTOR)


def query_of(view: View) -> str:
    return view.kite.uri.partition("?")[2]


# Golden forms

FORMS: list[tuple[Callable[[Dataset], View], str]] = [
    (lambda d: d.kite.with_("value", 7, 14), "value=7,14"),
    (lambda d: d.kite.with_("value"), "value=exists()"),
    (lambda d: d.kite.with_("color", ""), "color=in()"),
    (lambda d: d.kite.with_("color", "", "orange"), "color=,orange"),
    (lambda d: d.kite.with_("color", "a", "b", ""), "color=a,b,"),
    (lambda d: d.kite.with_("color", "a,b"), "color=a%2Cb"),
    (lambda d: d.kite.with_("color", "John Doe", "a+b", "~*é"), "color=John+Doe,a%2Bb,%7E*%C3%A9"),
    (lambda d: d.kite.with_("color", "exists()", "[a,b)"), "color=exists%28%29,%5Ba%2Cb%29"),
    (lambda d: d.kite.with_("ratio", 34.0, 5.5), "ratio=34.0,5.5"),
    (lambda d: d.kite.with_("flag", True, False), "flag=true,false"),
    (lambda d: d.kite.with_("blob", b"abc"), "blob=BmFiYw"),
    (lambda d: d.kite.with_("blob", b""), "blob=AA"),
    (
        lambda d: (
            d.kite.from_("timestamp", 0)
            .kite.to_before("timestamp", 9)
            .kite.from_after("color", "green")
        ),
        "timestamp=[0,9)&color=(green,)",
    ),
    (lambda d: d.kite.from_after("color", "green").kite.to("color", "red"), "color=(green,red]"),
    (lambda d: d.kite.to("value", 12), "value=(,12]"),
    (
        lambda d: d.kite.from_("ts", dt.datetime(2013, 6, 1, tzinfo=UTC)),
        "ts=[2013-06-01T00:00:00Z,)",
    ),
    (lambda d: d.kite.from_("wall", dt.datetime(2013, 6, 1)), "wall=[2013-06-01T00:00:00,)"),
    (lambda d: d.kite.with_("dt", dt.date(2013, 6, 1)), "dt=2013-06-01"),
    (lambda d: d.kite.with_("price", Decimal("-1.50")), "price=-1.50"),
    (lambda d: d.kite.from_("x", 1e30), "x=[1e%2B30,)"),
    (lambda d: d.kite.with_("x", float("nan"), float("-inf")), "x=nan,-inf"),
    (lambda d: d.kite.from_("position.latitude", 5), "position.latitude=[5.0,)"),
    (lambda d: d.kite.with_("where", 1), "where=1"),
    (lambda d: d.where("value IS NULL"), "@where=value+IS+NULL"),
    (lambda d: d.where("value != 1 OR color = 'a'"), "@where=value+%21%3D+1+OR+color+%3D+%27a%27"),
    (lambda d: d.kite.from_("color", ""), "@where=color+%3E%3D+%27%27"),
    (lambda d: d.where("FALSE"), "@where=FALSE"),
    (lambda d: d.kite.with_("value", 5).where("flag IS NULL"), "value=5&@where=flag+IS+NULL"),
    (lambda d: d, ""),
]


@pytest.mark.parametrize(("refine", "query"), FORMS, ids=[query for _, query in FORMS])
def test_view_has_its_form_and_is_opened_by_it(
    dataset: Dataset, refine: Callable[[Dataset], View], query: str
) -> None:
    view = refine(dataset)

    assert query_of(view) == query
    opened = open_uri(view.kite.uri)
    assert isinstance(opened, View)
    assert str(opened.constraint) == str(view.constraint)
    assert opened.kite.uri == view.kite.uri
    assert opened.kite.is_of(dataset)


@pytest.mark.parametrize(
    ("query", "sql"),
    [
        ("value=", "value IS NOT NULL"),
        ("value=[1,2]&color=a", "value >= 1 AND value <= 2 AND color IN ('a')"),
        ("value=(1,2)", "value > 1 AND value < 2"),
        ("value=[,2]", "value <= 2"),
        ("value=[1,]", "value >= 1"),
        ("color=a%20b", "color IN ('a b')"),
        ("flag=TRUE", "flag IN (TRUE)"),
        ("blob=BmFiYw==", "blob IN (X'616263')"),
        ("ts=2013-06-01", "ts IN ('2013-06-01 00:00:00+00:00')"),
        ("position%2Ecode=a", "position.code IN ('a')"),
        ("@where=value+%3D+1", "value = 1"),
        ("%40where=value = 1", "value = 1"),
    ],
)
def test_other_ways_to_write_a_constraint(dataset: Dataset, query: str, sql: str) -> None:
    opened = open_uri(f"view:{dataset.uri}?{query}")

    assert isinstance(opened, View)
    assert str(opened.constraint) == sql


def test_normalised_form_does_not_depend_on_the_order(dataset: Dataset) -> None:
    one = (
        dataset.kite.with_("value", 45, 123).kite.from_("color", "a").where("flag IS NULL OR x = 1")
    )
    other = (
        dataset.where("flag IS NULL OR x = 1").kite.from_("color", "a").kite.with_("value", 123, 45)
    )

    forms = {view_query(view.constraint, normalised=True) for view in (one, other)}

    assert forms == {"@where=flag+IS+NULL+OR+x+%3D+1.0&color=[a,)&value=123,45"}


# Round trips

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
MOMENTS = st.datetimes().map(lambda moment: moment.replace(fold=0))
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.integers(-(2**63), 2**63 - 1),
    "color": TEXT,
    "flag": st.booleans(),
    "ratio": st.floats(width=32),
    "x": st.floats(),
    "blob": st.binary(max_size=200),
    "day": st.dates(),
    "ts": MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    "wall": MOMENTS,
    "price": st.decimals(-1000, 1000, places=2),
    "position.latitude": st.floats(),
    "position.code": TEXT,
    "dt": st.dates(),
    "batch_id": st.integers(0, 2**40),
}
REFINEMENTS = st.sampled_from(sorted(STRATEGIES)).flatmap(
    lambda field: st.tuples(
        st.just(field),
        st.sampled_from(["with_", "from_", "from_after", "to", "to_before"]),
        st.lists(STRATEGIES[field], max_size=3),
    )
)
WIDEST = lakebed.open_repository("memory://uri-laws").create("flights", DESCRIPTOR)


@given(refinements=st.lists(REFINEMENTS, max_size=6))
def test_every_view_that_refinements_make_comes_back(refinements: list[Any]) -> None:
    view: View = WIDEST
    for field, verb, values in refinements:
        if verb != "with_" and not values:
            continue
        try:
            view = getattr(view.kite, verb)(field, *(values if verb == "with_" else values[:1]))
        except PredicateError:
            continue  # outside the view so far

    address = parse_uri(view.kite.uri)

    opened = parse_constraints(address.constraints, TYPES)
    # As text, since a NaN does not equal itself. What only SQL can say comes last.
    found, wanted = (list(map(repr, conjuncts(one))) for one in (opened, view.constraint))
    assert sorted(found) == sorted(wanted)
    assert found == wanted or "@where" in view.kite.uri


SAMPLES: dict[str, list[Any]] = {
    "value": [0, -1],
    "color": ["", "a'b\\", "é,&=?#", "%41"],
    "x": [0.5, float("nan"), float("inf")],
    "ts": [dt.datetime(2013, 1, 1, 5, tzinfo=UTC)],
    "blob": [b"", b"a\0"],
    "position.latitude": [1.5],
    "flag": [True],
}


@given(predicate=predicates(SAMPLES, max_leaves=6))
def test_every_view_that_sql_makes_comes_back(predicate: Predicate) -> None:
    view = WIDEST.where(bind(predicate, TYPES))

    opened = WIDEST.where(parse_constraints(parse_uri(view.kite.uri).constraints, TYPES))

    # The order of the conditions may be another; their form is the same from then on.
    again = WIDEST.where(parse_constraints(parse_uri(opened.kite.uri).constraints, TYPES))
    assert again.kite.uri == opened.kite.uri
    normalised = [view_query(one.constraint, normalised=True) for one in (view, opened)]
    assert normalised[0] == normalised[1]


# Repositories, datasets, versions


def test_repository_and_dataset_come_back(tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path / "a lake?")
    dataset = lake.create("flights", DESCRIPTOR)

    assert lake.repo_uri == f"repo:{lake.uri}"
    assert dataset.kite.uri == f"dataset:{lake.uri}/flights"
    assert open_uri(lake.repo_uri).list() == ["flights"]  # type: ignore[union-attr]
    opened = open_uri(dataset.kite.uri)
    assert isinstance(opened, Dataset)
    assert opened.kite.is_of(dataset)
    assert (
        str(open_uri(dataset.kite.with_("value", 1).kite.uri))
        == "<View of 'flights': value IN (1)>"
    )


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}", "file:{}///"])
def test_locations_are_written_in_several_ways(tmp_path: Path, form: str) -> None:
    lakebed.open_repository(tmp_path).create("flights", DESCRIPTOR)

    place = form.format(f"{tmp_path}/flights")
    opened = [open_uri(f"dataset:{place}"), open_uri(f"view:{place}?value=1")]

    assert [str(one).split()[0] for one in opened] == ["<Dataset", "<View"]
    assert isinstance(open_uri("repo:" + form.format(tmp_path)), Repository)


@pytest.mark.parametrize("form", ["{}", "./{}", "file:{}"])
def test_location_may_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lakebed.open_repository("lake").create("flights", DESCRIPTOR)

    assert isinstance(open_uri("dataset:" + form.format("lake/flights")), Dataset)


def test_version_of_an_older_state_is_kept(dataset: Dataset) -> None:
    dataset.append([{"ts": None, "value": 1}])
    dataset.append([{"ts": None, "value": 2}])
    past = dataset.at(version=1)

    assert past.kite.uri.endswith("/test-name?@version=1")
    assert past.kite.with_("value", 1, 2).kite.uri.endswith("?value=1,2&@version=1")
    for uri in (past.kite.uri, past.kite.with_("value", 1, 2).kite.uri):
        opened = open_uri(uri)
        assert isinstance(opened, View)
        assert opened.count() == 1
    with pytest.raises(VersionNotFoundError):
        open_uri(f"{dataset.kite.uri}?@version=9")


# Refusals


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("colour=a", "Unknown column 'colour'.*Did you mean 'color'"),
        ("hdfs:port=1080", "Unknown column 'hdfs:port'"),
        ("position.lat=1", "Unknown column 'position.lat'.*position.latitude"),
        ("@were=value+%3D+1", "Unknown query field '@were'.*@where"),
        ("@where=colour+%3D+1", "Unknown column 'colour'"),
        ("@where=", "Cannot read the predicate"),
        ("flag=yes", "'yes' is not a valid boolean"),
        ("flag=1", "'1' is not a valid boolean"),
        ("value=a", "'a' is not a valid int"),
        ("value=1,", "'' is not a valid int"),
        ("value=1.0", "is not a valid int"),
        ("value=[1", "is not a range"),
        ("value=1)", "is not a range"),
        ("value=[1,2,3]", "is not a range"),
        ("value=[,]", "is not a range"),
        ("value=[a,b]", "'a' is not a valid int"),
        ("blob=abc", "is not a form of bytes"),
        ("blob=B%20", "is not a form of bytes"),
        ("blob=é", "is not a form of bytes"),
        ("blob=____________", "is not a form of bytes"),
        ("color=%FF", "is not UTF-8"),
        ("position=1", "position"),
        ("ts=2013-13-01", "is not a valid timestamp"),
    ],
)
def test_constraint_that_does_not_fit_is_refused(
    dataset: Dataset, query: str, message: str
) -> None:
    with pytest.raises(PredicateError, match=message):
        open_uri(f"view:{dataset.uri}?{query}")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("veiw:/lake/flights", "Did you mean 'view'"),
        ("s3://bucket/lake", "is not a URI.*dataset:LOCATION/NAME"),
        ("/lake/flights", "is not a URI"),
        ("", "is not a URI"),
        ("repo:", "names no location"),
        ("dataset:", "names no location"),
        ("dataset:flights", "names no location"),
        ("dataset:memory://flights", "names no location"),
        ("repo:memory://lake?value=1", "'value': a repository has no query"),
        ("dataset:memory://lake/flights?value=1", "'value': .*write view:"),
        ("view:memory://lake/flights?value", "'value' in .* is not a constraint"),
        ("view:memory://lake/flights?=1", "'=1' in .* is not a constraint"),
        ("view:memory://lake/flights?value=1&", "is not a constraint"),
        ("view:memory://lake/flights?value=1&value=2", "appears twice"),
        ("dataset:memory://lake/flights?@version=x", "not a whole number"),
    ],
)
def test_what_is_no_uri_is_refused(uri: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        open_uri(uri)


def test_missing_dataset_is_named(dataset: Dataset) -> None:
    with pytest.raises(DatasetNotFoundError, match="test-name"):
        open_uri(f"{dataset.kite.uri}s")


def test_view_without_constraint_has_the_uri_of_its_dataset() -> None:
    repository = lakebed.open_repository("memory://unconstrained")
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    numbers = repository.create("numbers", lakebed.DatasetDescriptor(schema=schema))

    assert numbers.kite.uri == numbers.kite.uri == "dataset:memory://unconstrained/numbers"
    assert numbers.at(version=0).kite.uri == numbers.at(version=0).kite.uri
    assert numbers.kite.from_("n", 3).kite.uri.startswith("view:")
    assert lakebed.open_uri(numbers.kite.uri).kite.uri == numbers.kite.uri

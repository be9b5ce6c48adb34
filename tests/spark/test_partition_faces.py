"""Partition functions as Spark columns: what Spark gives is what Arrow and Python give."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from partition_cases import CALLS, accepted, function_of, values_of

from lakebed import by
from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct
from lakebed.spark.partition import partition_column, refusals_as_errors
from lakebed.spark.types import struct_type

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"


@pytest.fixture(autouse=True)
def _far_from_utc(spark) -> Iterator[None]:
    """Let the session have a zone that is on no full hour, and has summer time."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "America/St_Johns")
    yield
    spark.conf.set(ZONE, before)


def functions_on(kind: Kind) -> list[PartitionFunction]:
    """Return all functions that take a kind, each with a source of its own."""
    texts = [text for text, kinds in CALLS if kind in kinds]
    calls = [text.replace("(a", f"(a{n}").partition(" as ")[0] for n, text in enumerate(texts)]
    return [function_of(f"{call} as p{n}") for n, call in enumerate(calls)]


def check_kind(spark, kind: Kind, count: int) -> None:
    source = Primitive(kind)
    functions = functions_on(kind)
    schema = Schema(fields=tuple(Field(name=f.source, type=source) for f in functions))
    columns = {}
    for function in functions:
        values = values_of(kind, count, seed=count)
        fits = set(map(repr, accepted(function, kind, values)))
        given = [value if repr(value) in fits else None for value in (None, *values)]
        columns[function.source] = pa.array(given, type_to_arrow(source))
    table = pa.table(columns)
    if kind is Kind.UNSIGNED_LONG:  # Spark has a decimal for it
        table = table.cast(pa.schema([(name, pa.decimal128(20, 0)) for name in columns]))
    # Without the types, Spark would take a time without zone for one of the session's.
    frame = spark.createDataFrame(table, struct_type(schema))
    if kind is Kind.UNSIGNED_LONG:
        functions = [function for function in functions if function.type_name != "identity"]

    found = frame.select(
        *[partition_column(function, schema).alias(function.name) for function in functions]
    ).toArrow()

    for function in functions:
        wanted = function.array(columns[function.source], source)
        result = type_to_arrow(function.result_type(source))
        column = found.column(function.name).cast(result).combine_chunks()
        # As text, in which NaN equals itself.
        pairs = zip(columns[function.source], column, wanted, strict=True)
        wrong = [
            (str(function), *map(str, three)) for three in pairs if str(three[1]) != str(three[2])
        ]
        assert wrong == []


@pytest.mark.parametrize("kind", sorted(Kind))
def test_spark_gives_what_arrow_gives(spark, kind: Kind) -> None:
    check_kind(spark, kind, 300)


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(Kind))
def test_spark_gives_what_arrow_gives_for_many_values(spark, kind: Kind) -> None:
    check_kind(spark, kind, 12_000)


def test_nested_and_provided_fields_are_columns_too(spark) -> None:
    schema = Schema(
        fields=(
            Field(name="position", type=Struct((Field(name="n", type=Primitive(Kind.LONG)),))),
            Field(name="s", type=Primitive(Kind.STRING)),
        )
    )
    strategy = PartitionStrategy.parse(
        "hash(position.n, 7), range(position.n, 5, 10), provided(version, int), hash(s, 53)"
    )
    rows = [((8,), "jane"), ((None,), None), (None, "green")]
    frame = spark.createDataFrame(rows, "position struct<n: bigint>, s string")

    found = frame.select(
        *[partition_column(f, schema, {"version": 7}).alias(f.name) for f in strategy]
    ).collect()

    assert [tuple(row) for row in found] == [
        (1, 1, 7, 3),
        (None, None, 7, None),
        (None, None, 7, 25),
    ]
    with pytest.raises(PartitionSpecError, match="'version' gets its value"):
        partition_column(strategy.functions[2], schema)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (by.range("a", [5, 10]), 21),  # computed by Spark
        (by.values("a", [[7], [9]]), 12),
        (by.date("a"), 253402300800000),
        (by.year("a", unit="s"), 2**63 - 1),
        (by.date_format("a", "yyyy"), 253402300800000),  # computed by Python
        (by.range("s", ["g", "p"]), "quote '\"\\ \u00e9"),
        (by.values("s", [["g"], ["p"]]), "quote '\"\\ \u00e9"),
    ],
)
def test_refusal_in_a_job_is_the_error_of_the_other_faces(spark, function, value) -> None:
    kind = Primitive(Kind.LONG if function.source == "a" else Kind.STRING)
    schema = Schema(fields=(Field(name=function.source, type=kind),))
    value = f"z{value}" if isinstance(value, str) else value
    frame = spark.createDataFrame([(value,)], f"{function.source} {kind}".replace("long", "bigint"))
    with pytest.raises(PartitionSpecError) as alone:
        function.value(value, kind)

    with pytest.raises(PartitionSpecError) as caught, refusals_as_errors():
        frame.select(partition_column(function, schema)).collect()

    assert (caught.value.message, caught.value.hint) == (alone.value.message, alone.value.hint)


def test_other_errors_of_spark_stay_as_they_are(spark) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as caught, refusals_as_errors():
        spark.sql("SELECT raise_error('DIVIDE_BY_ZERO')").collect()

    assert not isinstance(caught.value, PartitionSpecError)

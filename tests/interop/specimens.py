"""Datasets as Lakebed writes them, one of each kind, and questions to ask of them."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import by
from lakebed.arrow.kernel import WriteOptions

Row = dict[str, Any]
Dnf = list[list[tuple[str, str, Any]]]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("unsigned", pa.uint64()),
        ("ratio", pa.float32()),
        ("price", pa.float64()),
        ("word", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("money", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.list_(pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("label", pa.string())])),
        ("visits", pa.list_(pa.struct([("page", pa.string()), ("seconds", pa.int32())]))),
        ("attributes", pa.map_(pa.string(), pa.int64())),
    ]
)
# Those that plateau takes predicates on.
PLAIN = ("id", "flag", "small", "big", "unsigned", "ratio", "price", "word", "raw", "day", "wall")
ORDERS = ("==", "!=", "<", "<=", ">", ">=")
ODD_TEXTS = [
    *("a/b", "a//b/", "/", "..", ".", "../../etc", "100%", "50%25", "x%2Fy", "%", "a=b", "="),
    *("it's", '"quoted"', "[x]{y}(z)<w>", "a:b*c?d|e", "back\\slash", "tab\there", "new\nline"),
    *("two words", " ", "é", "ü", "日本", "🦆", "e\u0301", "", "007", "1.0", "1+1", "True", "None"),
    *("nan", "null", "2013-01-01", "__HIVE_DEFAULT_PARTITION__", "batch_id=1", "~_.-", "#$&,;@^`"),
]


def row(number: int) -> Row:
    """Return an entity with a value in each column, extreme ones among them."""
    return {
        "id": number,
        "flag": number % 2 == 0,
        "small": number - 2**31,
        "big": 2**53 + number,
        "unsigned": 2**63 + number,
        "ratio": number / 4,
        "price": number * 1.1,
        "word": f"wörd {number}",
        "raw": bytes([number + 1, 255] if number < 9 else [255, 0, 254, 0]),
        "day": dt.date(1969, 12, 30) + dt.timedelta(number),
        "at": dt.datetime(2013, 1, 1, 22, 59, 59, 123456 + number, dt.UTC)
        + dt.timedelta(hours=number),
        "wall": dt.datetime(1965, 3, 4, number, 30, 0, 7),
        "money": Decimal(number * 25 - 50) / 100,
        "tags": ["a", None, f"b{number}"][: number % 4],
        "counts": [number, None],
        "place": {"x": number / 2, "label": None if number % 3 else "home"},
        "visits": [{"page": "/", "seconds": number}],
        "attributes": {"depth": number},
    }


def null_row(number: int) -> Row:
    """Return an entity without any value but its id."""
    return dict.fromkeys(SCHEMA.names) | {"id": number}


ROWS = [row(number) for number in range(10)]


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A dataset to write.

    Attributes:
        name: Of the dataset.
        write: Fills it.
        predicates: Questions on which plateau and SQL agree.
        schema: Of its entities.
        partition_by: Its strategy.
        head_format: Of its head.
        compression: Of its data files.
    """

    name: str
    write: Callable[[lakebed.Dataset], object]
    predicates: Sequence[Dnf]
    schema: pa.Schema = SCHEMA
    partition_by: Sequence[Any] = ()
    head_format: str = "json"
    compression: str = "zstd"

    def create(self, repository: lakebed.Repository) -> lakebed.Dataset:
        """Write it."""
        dataset = repository.create(
            self.name,
            lakebed.DatasetDescriptor(
                schema=self.schema, partition_by=self.partition_by, compression=self.compression
            ),
            head_format=self.head_format,
        )
        self.write(dataset)
        return dataset


def columns_of(dataset: lakebed.Dataset) -> list[str]:
    """Return all columns: fields, then partition fields that are not fields, `batch_id` last."""
    return list(dataset.descriptor.column_types)


def appends(*batches: list[Row], options: WriteOptions | None = None) -> Callable[..., None]:
    def write(dataset: lakebed.Dataset) -> None:
        for batch in batches:
            dataset.with_options(write=options).append(batch)

    return write


def questions(values: Row, ops: Sequence[str] = ORDERS) -> Iterator[Dnf]:
    """Yield comparisons of each column with its value, and one `in`."""
    for column, value in values.items():
        yield from ([[(column, op, value)]] for op in ops)
        yield [[(column, "in", [value, value])]]


def zoneless(values: Row) -> Row:
    """Drop zones: plateau compares instants with UTC times that name no zone."""
    return {
        name: value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
        for name, value in values.items()
    }


def _plain_questions(number: int = 3) -> list[Dnf]:
    values = {name: row(number)[name] for name in PLAIN}
    mixed = [
        [[("id", ">", 2), ("word", "<", "wörd 7")]],
        [[("id", "<", 2)], [("word", "==", "wörd 8"), ("flag", "==", True)]],
        [[("batch_id", ">", 0), ("price", ">=", 5.5)]],
        [[("batch_id", "==", 0)], [("id", "==", 4)]],
        [[("id", "in", [])]],
        [[("word", "!=", None)]],
    ]
    return [*questions(values), *questions(zoneless({"at": row(number)["at"]})), *mixed]


def _key_questions(column: str, number: int = 3, value: Any = None) -> list[Dnf]:
    values = zoneless({column: row(number)[column] if value is None else value})
    ((column, value),) = values.items()
    return [
        *questions(values),
        [[(column, "not in", [value])]],
        [[(column, "!=", value), ("id", "<", 5)]],
        [[(column, "==", value)], [("id", "==", 9)]],
        [[(column, ">=", value), ("batch_id", ">", 0), ("price", "<", 7.7)]],
    ]


def _by_key(column: str) -> Specimen:
    return Specimen(
        name=f"by-{column}",
        write=appends(ROWS[:6], ROWS[6:]),
        predicates=_key_questions(column),
        partition_by=[by.identity(column)],
    )


def _change_often(dataset: lakebed.Dataset) -> None:
    dataset.append(ROWS[:4])
    dataset.append(ROWS[2:8], run="second")
    dataset.overwrite([row(5) | {"price": -1.0}, row(5) | {"id": 11}])
    dataset.append([])
    dataset.overwrite([], dataset.where([[("word", "==", "wörd 2")]]))
    with dataset.kite.writer() as writer:
        writer.write(row(9))


_CHANGED_QUESTIONS = [
    *_key_questions("word", 5),
    *_key_questions("dt", value=dt.date(2013, 1, 2)),
    [[("word", "==", "wörd 2")]],
    [[("word", ">", "wörd 3"), ("dt", "<=", dt.date(2013, 1, 2)), ("price", "<", 0.0)]],
]


def _changed(name: str, head_format: str) -> Specimen:
    return Specimen(
        name=name,
        write=_change_often,
        predicates=_CHANGED_QUESTIONS,
        partition_by=[by.identity("word"), by.date("at", name="dt")],
        head_format=head_format,
    )


def _with_nulls(dataset: lakebed.Dataset) -> None:
    dataset.append([ROWS[0], null_row(20), *ROWS[1:5]])
    dataset.append([null_row(21)])
    dataset.append(ROWS[5:])


# In pandas, whole numbers beside nulls are floats, which plateau compares with no whole number.
_WITHOUT_INTEGERS = ("flag", "ratio", "price", "word", "raw", "day", "wall")
_TEXT_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])

SPECIMENS = (
    Specimen(name="types", write=appends(ROWS[:6], ROWS[6:]), predicates=_plain_questions()),
    Specimen(
        name="types-msgpack",
        write=appends(ROWS[:6], ROWS[6:]),
        predicates=_plain_questions(),
        head_format="msgpack.zstd",
    ),
    Specimen(
        name="nulls",
        write=_with_nulls,
        predicates=[
            *questions({name: row(3)[name] for name in _WITHOUT_INTEGERS}, ops=["=="]),
            *questions({name: row(3)[name] for name in ("ratio", "price", "wall")}, ops=[">"]),
            [[("word", "==", None)]],
            [[("word", "!=", None)]],
            [[("word", "in", ["wörd 1", None])]],
        ],
    ),
    Specimen(
        name="by-text",
        write=appends(
            [{"id": number, "text": text} for number, text in enumerate(ODD_TEXTS)],
            [{"id": 100, "text": "a/b"}, {"id": 101, "text": ""}],
        ),
        predicates=[
            *([[("text", "==", text)]] for text in ODD_TEXTS),
            *questions({"text": "a/b"}),
            *questions({"text": ""}),
            *questions({"text": "é"}),
            [[("text", "in", ["/", "..", "🦆"])], [("id", "==", 5)]],
            [[("text", "not in", ["/", "..", "🦆", "absent"])]],
        ],
        schema=_TEXT_SCHEMA,
        partition_by=[by.identity("text")],
    ),
    *(
        _by_key(name)
        for name in ("small", "big", "unsigned", "ratio", "price", "word", "day", "at", "wall")
    ),
    Specimen(
        name="by-negative",
        write=appends([row(1) | {"big": big} for big in (-(2**63), -1, 0, 2**63 - 1)]),
        predicates=_key_questions("big", value=-1),
        partition_by=[by.identity("big")],
    ),
    Specimen(
        name="by-midnight",
        write=appends(
            [
                row(number) | {"wall": dt.datetime(2013, 1, 1, hour)}
                for number, hour in ((1, 0), (2, 7))
            ]
        ),
        predicates=_key_questions("wall", value=dt.datetime(2013, 1, 1)),
        partition_by=[by.identity("wall")],
    ),
    Specimen(
        name="hashed",
        write=appends(ROWS),
        predicates=_key_questions("word_hash", value=1),
        partition_by=[by.hash("word", 4)],
    ),
    Specimen(
        name="by-date",
        write=appends(ROWS),
        predicates=_key_questions("dt", value=dt.date(2013, 1, 2)),
        partition_by=[by.date("at", name="dt")],
    ),
    Specimen(
        name="by-hour",
        write=appends(ROWS),
        predicates=[
            *itertools.chain.from_iterable(
                _key_questions(name, value=value)
                for name, value in (("year", 2013), ("month", 1), ("dd", 2), ("hour", 1))
            ),
            [[("dd", "==", 2), ("hour", "<", 3)], [("hour", ">", 22)]],
        ],
        partition_by=[by.year("at"), by.month("at"), by.day("at", name="dd"), by.hour("at")],
    ),
    _changed("changed", "json"),
    _changed("changed-msgpack", "msgpack.zstd"),
    Specimen(
        name="empty",
        write=appends(),
        predicates=_key_questions("word"),
        partition_by=[by.identity("word")],
    ),
    Specimen(
        name="emptied",
        write=lambda dataset: (dataset.append(ROWS), dataset.overwrite([], dataset)),
        predicates=_plain_questions(),
    ),
    Specimen(
        name="many-row-groups",
        write=appends(
            [row(number % 10) | {"id": number} for number in range(50)],
            options=WriteOptions(row_group_bytes=1),
        ),
        predicates=_plain_questions(),
    ),
    *(
        Specimen(
            name=f"as-{name}",
            write=appends(ROWS),
            predicates=[[[("id", ">", 4)]]],
            compression=name,
        )
        for name in ("zstd", "snappy", "gzip", "lz4", "uncompressed")
    ),
)

"""A dataset as a table of a Hive metastore: names, columns, partitions as text. No I/O."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from lakebed.arrow.formats.avro_files import file_schema
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.avro import has_entries
from lakebed.model.keys import BATCH_ID, NULL_VALUE
from lakebed.model.publishing import Mode
from lakebed.model.renaming import check_shown_by_stored_name
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    find_alike_fields,
    walk,
)
from lakebed.model.values import Scalar, format_value
from lakebed.state.state import State
from lakebed.tables.shown_facts import check_required

AVRO_SCHEMA = "avro.schema.literal"
"""The property of a table with the schema for Hive's reader of Avro."""

# A metastore stores partition values as text. Values of these types are read back unchanged, in
# every time zone of the session.
_PARTITION_KINDS = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.STRING: "string",
    Kind.DATE: "date",
}
_KINDS = {
    **_PARTITION_KINDS,
    Kind.UNSIGNED_LONG: "decimal(20,0)",  # as Spark reads Parquet's unsigned 64 bits
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.BYTES: "binary",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIMESTAMP_NTZ: "timestamp_ntz",
}
_IN_LITERALS = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", ";": "\\u003B"})
_TIMES = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
# What Spark refuses in names of a table in a metastore, and what SQL shells replace or split at.
_NOT_IN_NAMES = re.compile(r"[,:;]|\$\{")
_WORD = re.compile(r"\w+")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9_.\-\u0080-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: Name of the field in the dataset; a metastore ignores the case.
        type: Type in DDL.
        doc: Comment of the column.
    """

    name: str
    type: str
    doc: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The lower-case name and type, for comparisons."""
        return self.name.lower(), self.type.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table.

    Attributes:
        data: Columns that the files hold.
        keys: Partition columns, in order.
        format: Format of the files: parquet or avro.
        avro_schema: Schema that Hive's reader of Avro needs to find fields with upper-case letters;
            empty where it needs none.
    """

    data: tuple[Column, ...]
    keys: tuple[Column, ...]
    format: str = "parquet"
    avro_schema: str = ""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table that readers need."""
        return {AVRO_SCHEMA: self.avro_schema} if self.avro_schema else {}


def columns_of(state: State, mode: Mode) -> Columns:
    """Return the columns under which a dataset is published.

    Partition fields, including those of derived functions, become partition columns.

    Raises:
        InvalidInputError: The dataset's files are of a format that Hive does not read, a field was
            renamed, a field of Avro would read as other values, or a partition field is of a type
            that does not read back from text.
        SchemaMismatchError: Two fields differ only in case.
    """
    name = state.name
    if state.descriptor.format not in ("parquet", "avro"):
        raise InvalidInputError(
            f"Dataset {name!r} cannot be published: its format is {state.descriptor.format!r}.",
            hint="Append its rows to a dataset of Parquet, and publish that one.",
        )
    check_required(state)
    check_shown_by_stored_name(state.descriptor.schema, "Hive")
    key_types = (
        state.layout.partition_types if mode == "batches" else state.layout.partition_level_types
    )
    data = tuple(field for field in state.descriptor.schema if field.name not in key_types)
    alike = find_alike_fields({**{field.name: field.type for field in data}, **key_types})
    if alike is not None:
        raise SchemaMismatchError(
            f"Fields {alike[0]!r} and {alike[1]!r} of dataset {name!r} differ only in case, which a "
            "metastore ignores.",
            hint="Give one of them another name.",
        )
    _check_names(name, data, key_types)
    if state.descriptor.format == "avro":
        _check_avro(name, data)
    return Columns(
        data=tuple(_column(field) for field in data),
        keys=tuple(Column(name=key, type=_key_type(key, kind)) for key, kind in key_types.items()),
        format=state.descriptor.format,
        avro_schema=_avro_schema(state.descriptor.schema, data)
        if state.descriptor.format == "avro"
        else "",
    )


def _avro_schema(schema: Schema, data: Sequence[Field]) -> str:
    """Return the schema with which Hive reads the columns, if it needs one.

    Without one, Hive derives a schema from its own names of columns, which are in lower case, and
    finds no field with upper-case letters. Every field may be missing in older files.
    """
    if all(field.name == field.name.lower() for _, field in walk(data)):
        return ""
    fields = tuple(map(_optional_field, data))
    return json.dumps(file_schema(replace(schema, fields=fields)), separators=(",", ":"))


def _optional_field(field: Field) -> Field:
    return replace(field, type=_optional_type(field.type), nullable=True, default=None)


def _optional_type(type_: Type) -> Type:
    match type_:
        case ListOf(element=element):
            return ListOf(_optional_type(element), element_nullable=True)
        case MapOf(value=value):
            return replace(type_, value=_optional_type(value), value_nullable=True)
        case Struct(fields=fields):
            return Struct(tuple(map(_optional_field, fields)))
    return type_


def _check_avro(dataset: str, data: Sequence[Field]) -> None:
    """Check that Hive's own reader of Avro reads all fields as they are.

    It reads microseconds as numbers or as milliseconds.
    """
    for path, field in walk(data):
        if any(kind in _TIMES for kind in _primitives_in(field.type)):
            raise InvalidInputError(
                f"Field {path!r} of dataset {dataset!r} is of type {field.type}: Hive reads times "
                "of Avro in milliseconds only, and these are in microseconds.",
                hint="Append the rows to a dataset of Parquet, and publish that one.",
            )
        if _has_entries_inside(field.type):
            raise InvalidInputError(
                f"Field {path!r} of dataset {dataset!r} is of type {field.type}: Hive reads maps of "
                "Avro with texts as keys only.",
                hint="Append the rows to a dataset of Parquet, and publish that one.",
            )


def _primitives_in(kind: Type) -> Iterator[Kind]:
    match kind:
        case Primitive(kind=primitive):
            yield primitive
        case ListOf(element=inner):
            yield from _primitives_in(inner)
        case MapOf(value=inner, key=key):
            yield from _primitives_in(key)
            yield from _primitives_in(inner)


def _has_entries_inside(kind: Type) -> bool:
    match kind:
        case ListOf(element=inner):
            return _has_entries_inside(inner)
        case MapOf(value=inner):
            return has_entries(kind) or _has_entries_inside(inner)
    return False


def _check_names(dataset: str, data: Sequence[Field], keys: Iterable[str]) -> None:
    """Check that a metastore takes all names, and the SQL that creates the table."""
    columns = {field.name for field in data}
    for path, field in walk(data):
        if path in columns and _NOT_IN_NAMES.search(path):
            raise _refused(dataset, path, "A column has no ',', ':', ';' or '${' in its name.")
        if path not in columns and not _WORD.fullmatch(field.name):
            raise _refused(dataset, path, "Inside a record a name has letters, digits and '_'.")
    for key in keys:
        if not (_WORD.fullmatch(key) and key.isascii()):
            rule = "Conditions on partitions take letters of ASCII, digits and '_'."
            raise _refused(dataset, key, rule)


def _refused(dataset: str, path: str, rule: str) -> InvalidInputError:
    return InvalidInputError(
        f"A Hive metastore does not take the name of field {path!r} of dataset {dataset!r}.",
        hint=f"{rule} Give the field another name.",
    )


def _column(field: Field) -> Column:
    return Column(name=field.name, type=ddl_type(field.type), doc=field.doc)


def _key_type(name: str, kind: Type) -> str:
    if isinstance(kind, Primitive) and kind.kind in _PARTITION_KINDS:
        return ddl_type(kind)
    raise InvalidInputError(
        f"Partition field {name!r} is of type {kind}, which does not read back from the text that "
        "a metastore stores.",
        hint="Partition by date(…), hour(…), hash(…) or a range; by identity, fields of type "
        f"{', '.join(_PARTITION_KINDS)} can be published.",
    )


def ddl_type(kind: Type) -> str:
    """Return a type as Spark's DDL writes it.

    >>> ddl_type(ListOf(Struct((Field(name="n", type=Primitive(Kind.LONG)),))))
    'array<struct<`n`:bigint>>'
    """
    match kind:
        case Primitive(kind=primitive, bits=bits):
            return str(kind) if bits else _KINDS[primitive]
        case Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListOf(element=element):
            return f"array<{ddl_type(element)}>"
        case MapOf(value=value, key=key):
            return f"map<{ddl_type(key)},{ddl_type(value)}>"
        case Struct(fields=fields):
            inner = ",".join(f"`{field.name}`:{ddl_type(field.type)}" for field in fields)
            return f"struct<{inner}>"


def schema_differences(wanted: Columns, actual: Columns) -> tuple[str, ...]:
    """Return how the columns of a table differ from the wanted ones, in words."""
    differences = []
    have = {column.name.lower(): column for column in actual.data}
    for column in wanted.data:
        existing = have.pop(column.name.lower(), None)
        if existing is None:
            differences.append(f"column {column.name} {column.type} is missing")
        elif plain_type(column.type) != plain_type(existing.type):
            differences.append(f"column {column.name} is {existing.type} instead of {column.type}")
    differences += [
        f"column {column.name} {column.type} is not in the dataset" for column in have.values()
    ]
    if [key.identity for key in wanted.keys] != [key.identity for key in actual.keys]:
        differences.append(
            f"it is partitioned by {_listed(actual.keys)} instead of {_listed(wanted.keys)}"
        )
    return tuple(differences)


def _listed(keys: Iterable[Column]) -> str:
    return ", ".join(f"{key.name} {key.type}" for key in keys) or "nothing"


def plain_type(text: str) -> str:
    """Return a type in DDL in lower case, without quotes and spaces."""
    return text.replace("`", "").replace(" ", "").lower()


def added_columns(wanted: Columns, actual: Columns) -> tuple[Column, ...] | None:
    """Return the columns that a table lacks; None if adding columns is not enough."""
    have = {column.name.lower(): plain_type(column.type) for column in actual.data}
    new = tuple(column for column in wanted.data if column.name.lower() not in have)
    kept = {
        column.name.lower(): plain_type(column.type)
        for column in wanted.data
        if column.name.lower() in have
    }
    same_keys = [key.identity for key in wanted.keys] == [key.identity for key in actual.keys]
    return new if kept == have and same_keys else None


@dataclass(frozen=True, slots=True)
class Spec:
    """A partition of a table.

    Attributes:
        path: Path as in `SHOW PARTITIONS`, with names in lower case; empty if unpartitioned.
    """

    path: str

    def __str__(self) -> str:
        return self.path

    @classmethod
    def of(cls, values: Mapping[str, Scalar], keys: Iterable[Column]) -> Self:
        """Return the partition of some values.

        Raises:
            InvalidInputError: A metastore cannot hold a value: the empty text, or the text that
                means null.
        """
        return cls("/".join(f"{key.name.lower()}={_level(values[key.name], key)}" for key in keys))

    @classmethod
    def parse(cls, path: str) -> Self:
        """Return the partition of a path from a metastore, however it is escaped."""
        levels = [level.partition("=") for level in path.split("/") if level]
        return cls(
            "/".join(f"{name.lower()}={_escape(unescape(value))}" for name, _, value in levels)
        )

    def values(self) -> dict[str, str | None]:
        """Return the text of each value by the lower-case name of its column; None for null."""
        levels = [level.partition("=") for level in self.path.split("/") if level]
        return {name: None if value == NULL_VALUE else unescape(value) for name, _, value in levels}

    def without_batch(self) -> Spec:
        """Return the partition without its batch."""
        head, _, last = self.path.rpartition("/")
        return Spec(head) if last.startswith(f"{BATCH_ID}=") else self

    def sql(self, keys: Iterable[Column]) -> str:
        """Return `PARTITION (…)` with typed literals."""
        values = self.values()
        terms = (f"`{key.name}`={_literal(values[key.name.lower()], key.type)}" for key in keys)
        return f"PARTITION ({', '.join(terms)})"


def _level(value: Scalar, key: Column) -> str:
    if value is None:
        return NULL_VALUE
    text = str(value).lower() if isinstance(value, bool) else format_value(value)
    if text in ("", NULL_VALUE):
        raise InvalidInputError(
            f"Partition field {key.name!r} holds {text!r}, which a metastore reads as null.",
            hint="Publish a dataset without this value, or partition by a function of the field.",
        )
    return _escape(text)


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """Undo Hive's escaping, which does not change letters outside ASCII."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _literal(text: str | None, kind: str) -> str:
    if text is None:
        return "null"
    try:
        if kind == "date":
            return f"DATE'{dt.date.fromisoformat(text).isoformat()}'"
        if kind in ("int", "bigint"):
            number = int(text)
            # In a partition spec Hive accepts a negative number only as text.
            return quoted(text) if number < 0 else f"{number}{'L' if kind == 'bigint' else ''}"
    except ValueError:
        return quoted(text)  # a partition that another tool has made
    return text if kind == "boolean" and text in ("true", "false") else quoted(text)


def quoted(text: str) -> str:
    r"""Return a text as a literal of Hive's and Spark's SQL, with their default settings.

    The literal is one line without semicolons, at which SQL shells split scripts even inside
    literals, and without `${env:NAME}`, which they replace.

    >>> print(quoted("it's; ${env:HOME}"))
    'it\'s\u003B \u0024{env:HOME}'
    """
    escaped = text.translate(_IN_LITERALS).replace("${", "\\u0024{")
    return f"'{escaped}'"


def pairs(properties: Mapping[str, str]) -> str:
    """Return properties as the list inside `TBLPROPERTIES (…)`."""
    return ", ".join(f"{quoted(name)}={quoted(value)}" for name, value in properties.items())

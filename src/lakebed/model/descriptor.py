"""Descriptors of datasets: schema, partition strategy, format, compression, properties."""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from lakebed.common.given import check_given, given_names, read_given
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.shown import cut
from lakebed.errors import InvalidInputError, PartitionSpecError, SchemaMismatchError
from lakebed.model import field_edits, renaming
from lakebed.model.arrow_types import schema_of_rows
from lakebed.model.avro import check_avro_names, check_depth, schema_from_avro, schema_to_avro
from lakebed.model.dataclass_types import declared_fields, schema_from_dataclass
from lakebed.model.declared import (
    Check,
    check_declared,
    checks_from_table,
    to_tables,
)
from lakebed.model.given_rows import find_arrow_schema, find_declared_schema
from lakebed.model.keys import BATCH_ID
from lakebed.model.kite_forms import MAPPING, find_mapping, find_strategy
from lakebed.model.names import (
    MAX_COMPONENT_BYTES,
    check_encoded_length,
    check_field_name,
    nearest,
)
from lakebed.model.partition import Dimension, PartitionFunction, PartitionStrategy
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    Kind,
    Primitive,
    Schema,
    Type,
    dotted_types,
    walk,
)
from lakebed.model.spark_types import as_nullable, schema_from_spark, spark_frame_of

# Compressions of each format; the first is the default.
COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "lz4", "uncompressed"),
    # snappy as in Kite and Spark; deflate makes smaller files and is the only codec that every
    # reader supports.
    "avro": ("snappy", "deflate", "zstd", "bzip2", "xz", "uncompressed"),
    # zstd is half the size of lz4 and is read about as fast; xz is for data that is rarely read.
    "submissions": ("zstd", "lz4", "gzip", "xz", "uncompressed"),
}
FORMATS = tuple(COMPRESSIONS)

KARTOTHEK_LABELS = "partition"  # the second column of Kartothek's index files

# The fields of a line of submissions; other fields are read from the document.
UUID, DOCUMENT = "uuid", "document"
_SUFFIX_OF_COMPRESSION = {"zstd": ".zst", "lz4": ".lz4", "gzip": ".gz", "xz": ".xz"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False)
class DatasetDescriptor:
    """The description of a dataset.

    Attributes:
        schema: The fields of an entity.
        partition_by: Maps every entity to its partition; empty for an unpartitioned dataset.
        format: Format of the data files: parquet, avro or submissions.
        compression: Compression of the data files.
        index: Columns with an inverted index, in order.
        properties: Key-value pairs of the user, all text.
        checks: Checks that every write must pass, by name.

    >>> descriptor = DatasetDescriptor(
    ...     schema=pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())]),
    ...     partition_by="date(ts) as dt",
    ... )
    >>> list(descriptor.partition_types)
    ['dt', 'batch_id']
    """

    schema: Schema
    partition_by: PartitionStrategy
    format: str
    compression: str
    index: tuple[str, ...]
    properties: Mapping[str, str]
    checks: Mapping[str, Check]
    # Columns of fields that `drop_field` has removed, so that an update knows that this was meant.
    dropped: frozenset[str] = dataclasses.field(init=False, compare=False)

    def __init__(
        self,
        *,
        schema: object,
        partition_by: PartitionStrategy
        | PartitionFunction
        | Iterable[PartitionFunction | str]
        | str
        | None = None,
        format: str = "parquet",  # noqa: A002 - the word of API.md
        compression: str | None = None,
        index: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        """Describe a dataset.

        Args:
            schema: Avro (parsed, JSON text, or the path of an .avsc file), a pyarrow.Schema,
                a Spark StructType, a class with typed fields (a dataclass, or one of attrs, pydantic
                or msgspec), or a Lakebed schema; or the rows: a frame of Spark, pandas or Polars, an
                Arrow table or stream, a relation of DuckDB, a table of deltalake or pyiceberg. The
                named levels of a pandas index are fields, other indices are not.
            partition_by: Functions from `lakebed.by`, or text such as
                `"date(time_hour) as dt, hash(user_id, 64)"`, or a list of both; `()` for no
                partitions. None for the `partitions` of an Avro schema of Kite; if it has none, the
                dataset is unpartitioned. The `mapping` of such a schema is checked, and stored in
                the property `kite.mapping`.
            format: Format of the data files: parquet, avro or submissions.
            compression: Compression of the data files. Parquet has zstd (the default), snappy,
                gzip, lz4 and uncompressed; Avro has snappy (the default), deflate, zstd, bzip2, xz
                and uncompressed; submissions have zstd (the default), lz4, gzip, xz and
                uncompressed.
            index: Columns with an inverted index, which finds the files that hold a value without
                opening them. It suits columns that the data is not sorted by and whose values lie
                in few files, such as ids.
            properties: Key-value pairs of the user, all text.
            checks: Checks that every write must pass, by name, as of `lakebed.checks`; see
                docs/checks.md.

        Raises:
            SchemaMismatchError: The form of the schema is unknown, or it holds an unsupported type.
            PartitionSpecError: The strategy does not fit the schema.
            InvalidInputError: The format is unknown, or lacks the compression; or a column
                cannot have an index; or a check cannot be declared.
            PredicateError: The condition of a check cannot be parsed.
        """
        set_field = object.__setattr__
        document = _avro_document(schema)
        fields = read_schema(schema if document is None else document)
        if partition_by is None:
            partition_by = find_strategy(document or {}) or ()
        strategy = PartitionStrategy.of(partition_by)
        mapping = find_mapping(document or {}, fields, strategy)
        set_field(self, "schema", fields)
        set_field(self, "partition_by", strategy)
        _check_choice("format", format, FORMATS)
        set_field(self, "format", format)
        set_field(
            self, "compression", COMPRESSIONS[format][0] if compression is None else compression
        )
        check_given("properties", properties, Mapping, "Give a dict that maps text to text.")
        set_field(self, "index", given_names("index", index))
        kept = {} if mapping is None else {MAPPING: mapping}
        set_field(self, "properties", {**kept, **(properties or {})})
        check_given("checks", checks, Mapping, "Give a dict that maps names to checks.")
        set_field(self, "checks", dict(checks or {}))
        set_field(self, "dropped", frozenset())
        self.check()

    def __repr__(self) -> str:
        parts = [shortened(f"{field.name}: {field.type}" for field in self.schema)]
        if self.partition_by:
            parts.append(f"partitioned by {shortened(map(str, self.partition_by))}")
        parts.append(f"{self.format}, {self.compression}")
        if self.index:
            parts.append(f"index of {shortened(self.index)}")
        if self.checks:
            parts.append(f"checks {shortened(self.checks)}")
        return f"<DatasetDescriptor {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        properties = (f"{key}={value}" for key, value in self.properties.items())
        checks = (f"{name}: {check}, {check.on_failure}" for name, check in self.checks.items())
        return facts_to_html(
            "Descriptor",
            {
                "columns": shortened(f"{field.name}: {field.type}" for field in self.schema),
                "partitioned by": shortened(map(str, self.partition_by)) or "nothing",
                "format": f"{self.format}, {self.compression}",
                "index": shortened(self.index) or "none",
                "properties": cut(shortened(properties)) or "none",
                **({"checks": cut(shortened(checks))} if self.checks else {}),
            },
        )

    @classmethod
    def of_other_tool(cls, schema: Schema) -> Self:
        """Describe a dataset of another tool, without checking the names of its columns.

        Lakebed can only create a dataset from the descriptor if it passes `check`.
        """
        described = object.__new__(cls)
        values: dict[str, object] = {
            "schema": schema,
            "partition_by": PartitionStrategy(),
            "format": "parquet",
            "compression": COMPRESSIONS["parquet"][0],
            "index": (),
            "properties": {},
            "checks": {},
            "dropped": frozenset(),
        }
        for name, value in values.items():
            object.__setattr__(described, name, value)
        return described

    def check(self) -> None:
        """Check that Lakebed can create such a dataset; new descriptors are checked already.

        Raises:
            SchemaMismatchError: As for a new descriptor.
            PartitionSpecError: As for a new descriptor.
            InvalidInputError: As for a new descriptor.
        """
        if self.compression not in COMPRESSIONS[self.format]:
            raise InvalidInputError(
                f"Unknown compression {self.compression!r} for format {self.format!r}.",
                hint=f"Known are: {', '.join(COMPRESSIONS[self.format])}.",
            )
        for _, one in walk(self.schema.fields):
            check_field_name(one.name)
        check_depth(self.schema, is_parquet=self.format == "parquet")
        self.partition_by.check(self.schema)
        renaming.check_columns_apart(self.schema, (one.name for one in self.partition_by))
        if self.format == "avro":
            check_avro_names(self.schema)
        if self.format == "submissions":
            self._check_submissions()
        self._check_index()
        if self.checks:
            check_declared(self.checks, self.schema)
        for key, value in self.properties.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidInputError(
                    f"Property {key!r} = {value!r} is not text.", hint="Keys and values are text."
                )

    def _check_submissions(self) -> None:
        for name in (UUID, DOCUMENT):
            field = self.schema.find(name)
            if field is None or field.type != Primitive(Kind.STRING):
                raise SchemaMismatchError(
                    f"Submissions need a field {name!r} of type string.",
                    hint="A line holds a uuid and a JSON document; other fields are read from it.",
                )
            if name not in self.stored_schema:
                raise PartitionSpecError(
                    f"Submissions cannot be partitioned by the field {name!r} itself.",
                    hint="Use its hash: the field must be in the line, and differs in each.",
                )

    def _check_index(self) -> None:
        for position, name in enumerate(self.index):
            if name in self.index[:position]:
                raise InvalidInputError(
                    f"Column {name!r} is named twice in the index.", hint="Name it once."
                )
            self._check_indexed(name)

    def _check_indexed(self, name: str) -> None:
        if name in self.partition_types:
            raise InvalidInputError(
                f"The partition field {name!r} cannot have an index.",
                hint="Leave it out: the paths hold its values, and files are found by them.",
            )
        if "." in name:
            raise InvalidInputError(
                f"{name!r}, which lies in a record, cannot have an index.",
                hint="Only top-level fields can have an index.",
            )
        if name not in self.schema:
            raise SchemaMismatchError(
                f"The index names an unknown column: {name!r}.",
                hint=nearest(name, self.schema.names)
                or f"Columns are: {', '.join(self.schema.names)}. Drop the index of a column "
                "together with the column.",
            )
        check_encoded_length(name, MAX_COMPONENT_BYTES, "the indexed column")
        kind = self.schema.get(name).type
        if not isinstance(kind, Primitive | Decimal):
            raise InvalidInputError(
                f"{name!r} of type {kind} cannot have an index.",
                hint="Numbers, texts, bytes, booleans, dates and times can be indexed.",
            )
        if name == KARTOTHEK_LABELS:
            raise InvalidInputError(
                f"A column named {name!r} cannot have an index.",
                hint="Index files use that name for the column of the files.",
            )

    @property
    def is_partitioned(self) -> bool:
        """True if the dataset is partitioned."""
        return len(self.partition_by) > 0

    @property
    def document_fields(self) -> tuple[Field, ...]:
        """The fields of submissions that are read from their documents; empty for other formats."""
        if self.format != "submissions":
            return ()
        return tuple(field for field in self.schema if field.name not in (UUID, DOCUMENT))

    @property
    def dimension_texts(self) -> frozenset[str]:
        """Paths of the text fields that dimensions are made of.

        A document may hold a value of any type there: its JSON text is compared with the allowed
        values.
        """
        return frozenset(
            function.source
            for function in self.partition_by
            if isinstance(function, Dimension)
            and function.source_type(self.schema) == Primitive(Kind.STRING)
        )

    @property
    def partition_types(self) -> dict[str, Type]:
        """Partition fields in order with their types, `batch_id` last."""
        own = self.partition_by.types(self.schema)
        return {**own, BATCH_ID: Primitive(Kind.LONG)}

    @property
    def column_types(self) -> dict[str, Type]:
        """The columns that can be read, with their types: fields, then partition fields."""
        fields = {f.name: f.type for f in self.schema.fields}
        return {**fields, **self.partition_types, **fields}

    @property
    def predicate_types(self) -> dict[str, Type]:
        """The columns for predicates: fields, nested ones by dots, and partition fields."""
        fields = dotted_types(self.schema)
        return {**fields, **self.partition_types, **fields}

    @property
    def stored_schema(self) -> Schema:
        """The fields that data files hold."""
        return self.schema.select(self.partition_by.stored_names(self.schema))

    @property
    def file_schema(self) -> Schema:
        """The columns of data files: the stored fields, by the names that they have there."""
        return self.stored_schema.as_stored()

    @property
    def stored_index(self) -> tuple[str, ...]:
        """The columns with an inverted index, by their names in data files."""
        return tuple(map(self.schema.stored_name, self.index))

    def rename_field(self, old: str, new: str) -> DatasetDescriptor:
        """Return the descriptor with a new name for a field, for `Dataset.evolve`.

        Data files keep the column under its former name, and are not rewritten. Partition functions
        and indices follow the new name.

        ```
        flights.evolve(lambda descriptor: descriptor.rename_field("carrier", "airline"))
        ```

        Args:
            old: Present name of a top-level field.
            new: Its new name.

        Raises:
            SchemaMismatchError: There is no such field, or one of the new name exists.
            PartitionSpecError: Only the names of directories hold the field, or a partition field
                has the new name.
            InvalidInputError: The field lies in a record, or in the documents of submissions.
            InvalidNameError: The new name is not legal.

        >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
        >>> descriptor.rename_field("n", "number").schema.names
        ('number',)
        """
        return self._keeping(renaming.with_field_renamed(self, old, new))

    def add_field(
        self,
        name: str,
        type: object,  # noqa: A002 - the word of a schema
        *,
        nullable: bool = True,
        default: object = MISSING,
        doc: str = "",
    ) -> DatasetDescriptor:
        """Return the descriptor with another field at the end of its schema, for `Dataset.evolve`.

        No data file is rewritten: rows that lack the field have its default, or null.

        ```
        flights.evolve(lambda descriptor: descriptor.add_field("note", "string"))
        ```

        Args:
            name: Name of the new field.
            type: Its type, as text such as `string`, `long`, `double`, `boolean`, `date`,
                `timestamp` or `decimal(10, 2)`; or a type of pyarrow, or one of Avro.
            nullable: Whether its values may be null. A field that is not nullable needs a default.
            default: Value of rows that lack the field. Without it, they have null.
            doc: Comment on the field.

        Raises:
            SchemaMismatchError: There is such a field, the type is unknown, or the default does not
                fit the type.
            InvalidInputError: The field would lie in a record.
            InvalidNameError: The name is not legal.

        >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
        >>> descriptor.add_field("note", "string").schema
        <Schema 'entity': n: long, note: string>
        """
        field = Field(
            name=name,
            type=field_edits.read_type(type),
            nullable=nullable,
            default=default,
            doc=doc,
        )
        added = field_edits.with_added(self.schema, field)
        return self._keeping(dataclasses.replace(self, schema=added))

    def change_type(self, name: str, type: object) -> DatasetDescriptor:  # noqa: A002 - as above
        """Return the descriptor with a wider type of a field, for `Dataset.evolve`.

        No data file is rewritten: old values are read as the new type. An int may become long or
        double, a float double, a date timestamp_ntz, a decimal one of more digits; `evolve` refuses
        any other change.

        ```
        flights.evolve(lambda descriptor: descriptor.change_type("delay", "long"))
        ```

        Args:
            name: Name of a top-level field.
            type: Its new type, as for `add_field`.

        Raises:
            SchemaMismatchError: There is no such field, or the type is unknown.
            InvalidInputError: The field lies in a record.

        >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int32())]))
        >>> descriptor.change_type("n", "long").schema
        <Schema 'entity': n: long>
        """
        changed = field_edits.with_type(self.schema, name, field_edits.read_type(type))
        return self._keeping(dataclasses.replace(self, schema=changed))

    def drop_field(self, name: str) -> DatasetDescriptor:
        """Return the descriptor without a field and its index, for `Dataset.evolve`.

        Data files keep the values, and versions before show them. A field of this name that is added
        later is another one.

        ```
        flights.evolve(lambda descriptor: descriptor.drop_field("note"))
        ```

        Raises:
            SchemaMismatchError: There is no such field, or no other one.
            PartitionSpecError: A partition function reads it.
            InvalidInputError: The field lies in a record, or a check names it.

        >>> schema = pa.schema([("n", pa.int64()), ("note", pa.string())])
        >>> DatasetDescriptor(schema=schema).drop_field("note").schema.names
        ('n',)
        """
        left = field_edits.without(self.schema, name)
        index = tuple(column for column in self.index if column != name)
        dropped = dataclasses.replace(self, schema=left, index=index)
        return self._keeping(dropped, self.schema.stored_name(name))

    def _keeping(self, changed: DatasetDescriptor, *dropped: str) -> DatasetDescriptor:
        """Return a changed descriptor that notes the dropped fields of this one, and more."""
        object.__setattr__(changed, "dropped", self.dropped.union(dropped))
        return changed

    def with_check(self, name: str, check: Check) -> DatasetDescriptor:
        """Return the descriptor with another declared check, for `Dataset.evolve`.

        ```
        flights.evolve(lambda old: old.with_check("sane", checks.condition("delay >= -120")))
        ```

        Args:
            name: Name of the check; one of this name is replaced.
            check: The check, as of `lakebed.checks`.

        Raises:
            InvalidInputError: The check cannot be declared; see docs/checks.md.
            SchemaMismatchError: It names an unknown column.
            PredicateError: Its condition cannot be parsed.
        """
        checks = {**self.checks, name: check}
        return self._keeping(dataclasses.replace(self, checks=checks))

    def without_check(self, name: str) -> DatasetDescriptor:
        """Return the descriptor without a declared check, for `Dataset.evolve`.

        Raises:
            InvalidInputError: There is no such check.
        """
        if name not in self.checks:
            raise InvalidInputError(
                f"There is no check {name!r}.",
                hint=nearest(name, self.checks)
                or f"Declared are: {', '.join(self.checks) or 'none'}.",
            )
        left = {known: check for known, check in self.checks.items() if known != name}
        return self._keeping(dataclasses.replace(self, checks=left))

    @property
    def file_suffix(self) -> str:
        """The suffix of the names of data files."""
        if self.format == "submissions":
            return f".tsv{_SUFFIX_OF_COMPRESSION.get(self.compression, '')}"
        return f".{self.format}"

    def to_document(self) -> dict[str, Any]:
        """Return the form that is stored in the head."""
        return {
            "schema": schema_to_avro(self.schema),
            "partition_by": self.partition_by.to_document(),
            "format": self.format,
            "compression": self.compression,
            # Only if there is one: the documents of other datasets stay unchanged.
            **({"index": list(self.index)} if self.index else {}),
            "properties": dict(self.properties),
            **({"checks": to_tables(self.checks)} if self.checks else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the form that `to_document` returns.

        Raises:
            InvalidInputError: The document does not describe a dataset.
        """
        properties = document.get("properties", {})
        if not isinstance(properties, Mapping):
            raise InvalidInputError(
                f"Properties are {reprlib.repr(properties)}.", hint="They map text to text."
            )
        index = document.get("index", [])
        if not isinstance(index, list):
            raise InvalidInputError(
                f"Index is {reprlib.repr(index)}.", hint="It is a list of columns."
            )
        compression = document.get("compression", "zstd")
        described = cls(
            schema=schema_from_avro(document.get("schema")),
            partition_by=PartitionStrategy.from_document(document.get("partition_by", [])),
            format=document.get("format", "parquet"),
            # A stored null must not select the default, as None from a caller does.
            compression="null" if compression is None else compression,
            index=index,
            properties=properties,
        )
        # Conditions are parsed where they are used: a reader of rows need not load the parser.
        checks = checks_from_table(document.get("checks", {}))
        object.__setattr__(described, "checks", checks)
        return described


def new_checks(old: DatasetDescriptor, new: DatasetDescriptor) -> dict[str, Check]:
    """Return the checks that a new descriptor of a dataset adds or changes, by name.

    A check of a renamed field stays the same check.
    """
    if not new.checks or new.checks == old.checks:
        return {}
    former = renaming.named_as(old, new.schema).checks
    return {name: check for name, check in new.checks.items() if former.get(name) != check}


def _check_choice(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInputError(
            f"Unknown {what} {value!r}.",
            hint=nearest(str(value), known) or f"Known are: {', '.join(known)}.",
        )


def read_schema(source: object) -> Schema:
    """Read a schema from any of the forms that `DatasetDescriptor` takes.

    Raises:
        SchemaMismatchError: The form is unknown, or the schema holds an unsupported type.
        InvalidNameError: A field name is not legal.
    """
    if isinstance(source, Schema):
        return source
    if isinstance(source, pa.Schema):
        return schema_of_rows(source)
    if isinstance(source, type) and declared_fields(source) is not None:
        return schema_from_dataclass(source)
    source = _as_avro_text(source)
    if isinstance(source, Mapping):
        return schema_from_avro(source)
    if isinstance(source, str | os.PathLike):
        return schema_from_avro(_parse_avro(source))
    # Ask the class: for a DataFrame of Spark Connect, any attribute may be one of its columns.
    if hasattr(type(source), "jsonValue"):
        return schema_from_spark(source.jsonValue())  # type: ignore[attr-defined]  # asked above
    found = find_schema_of_rows(source)
    if found is not None:
        return found
    raise SchemaMismatchError(
        f"Cannot read a schema from {type(source).__name__}.",
        hint="Give Avro (parsed, text or a path), a pyarrow Schema or Table, a frame of Spark, pandas "
        "or Polars, a Spark StructType, a table of another format, or a class with typed fields, such "
        "as a dataclass. For rows without a schema: `repository.write`.",
    )


def find_schema_of_rows(source: object) -> Schema | None:
    """Return the schema of a frame, a table or a stream of rows; None of an object without one.

    Raises:
        SchemaMismatchError: It holds an unsupported type.
        InvalidNameError: A field name is not legal.
    """
    declared = find_schema_unread(source)
    if declared is not None:
        return declared
    found = find_arrow_schema(source)
    return None if found is None else schema_of_rows(found)


def find_schema_unread(source: object) -> Schema | None:
    """Return the schema that an object has without reading rows; None if it has none.

    Raises:
        SchemaMismatchError: It holds an unsupported type.
        InvalidNameError: A field name is not legal.
    """
    source = spark_frame_of(source)
    # To ask a LazyFrame for its schema is a warning.
    is_lazy = type(source).__module__.startswith("polars.")
    # A Spark DataFrame has the schema, and the schema its JSON form: no pyspark is needed here.
    inner: Any = None if is_lazy else getattr(source, "schema", None)
    if isinstance(inner, Schema):
        return inner
    if hasattr(inner, "jsonValue"):
        # What Spark could prove of these rows need not hold for those of another day.
        return schema_from_spark(as_nullable(inner.jsonValue()))
    found = find_declared_schema(source)
    return None if found is None else schema_of_rows(found)


def _avro_document(source: object) -> Mapping[str, Any] | None:
    """Return the parsed document of an Avro schema; None for any other form."""
    source = _as_avro_text(source)
    if isinstance(source, str | os.PathLike):
        source = _parse_avro(source)
    return source if isinstance(source, Mapping) else None


def _as_avro_text(source: object) -> object:
    """Return a schema of Avro's own library as JSON text, and every other object unchanged."""
    return str(source) if type(source).__module__ == "avro.schema" else source


def _parse_avro(source: str | os.PathLike[str]) -> object:
    text = os.fspath(source)
    if not text.lstrip().startswith("{"):
        held = read_given(Path(text))
        if held is None:
            raise SchemaMismatchError(
                f"No schema file {text[:500]!r}.", hint="Give Avro JSON text or the path of a file."
            )
        text = held
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SchemaMismatchError(f"The schema is not JSON: {text[:80]!r}.", hint=str(exc)) from exc

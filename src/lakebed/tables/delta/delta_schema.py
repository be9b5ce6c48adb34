"""The metadata of a dataset as a Delta table: columns, protocol, properties. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from lakebed.errors import InvalidInputError
from lakebed.model import publishing
from lakebed.model.keys import schema_number_of
from lakebed.model.renaming import check_shown_by_stored_name
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
    walk,
)
from lakebed.model.values import Scalar
from lakebed.state.state import State
from lakebed.tables import shown_facts

# An engine may write a table only if it supports all writer features, and no engine supports this
# one: the table is a view of the dataset, and rows that others write to it would never reach the
# dataset. A vacuum is prevented too: it would delete files that only the dataset's own history
# names. Readers ignore the feature.
WRITER_FEATURE = "lakebed"
_NTZ = "timestampNtz"
_SIDECARS = "v2Checkpoint"
_REFUSED = frozenset(" ,;{}()\n\t=")  # in names of columns, by Delta's protocol

_KINDS = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "integer",
    Kind.LONG: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BYTES: "binary",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIMESTAMP_NTZ: "timestamp_ntz",
}
_PROPERTIES = {
    # Has no effect while others cannot write. If the feature is removed, a vacuum still deletes no
    # file that the table has named within the last hundred years.
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",  # done by a cleanup of the dataset
    "delta.checkpointPolicy": "classic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """Metadata of the table in the log, except the id and the time of creation.

    Attributes:
        schema: The columns, as Delta's JSON.
        partition_columns: Names of the partition columns, in order.
        protocol: Versions and features that readers and writers need.
        properties: Properties of the table, such as the retention.
    """

    schema: Mapping[str, Any]
    partition_columns: Sequence[str]
    protocol: Mapping[str, Any]
    properties: Mapping[str, str]

    @property
    def digest(self) -> str:
        """A digest of the metadata, for comparisons."""
        data = msgspec.json.encode(
            [self.schema, self.partition_columns, self.protocol, self.properties]
        )
        return hashlib.blake2b(data, digest_size=16).hexdigest()

    def actions(self, table_id: str, created_ms: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the `protocol` and the `metaData` actions."""
        metadata = {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": msgspec.json.encode(self.schema).decode(),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.properties),
            "createdTime": created_ms,
        }
        return {"protocol": dict(self.protocol)}, {"metaData": metadata}


def table_metadata(state: State) -> TableMetadata:
    """Return the metadata of a dataset as a Delta table.

    Directory levels become partition columns, in their order. Levels of derived functions and of
    the batch are included as the last columns, because some readers look for every level of a path
    among the partition columns.

    Raises:
        InvalidInputError: Delta cannot express a field; the message names it.
    """
    shown_facts.check_format(state, "Delta")
    check_shown_by_stored_name(state.descriptor.schema, "Delta")
    shown_facts.check_partition_types(state, "Delta")
    levels = state.layout.partition_types
    declared = state.descriptor.schema
    derived = tuple(
        Field(name=name, type=kind) for name, kind in levels.items() if name not in declared
    )
    fields = (*declared, *derived)
    shown_facts.check_cases(state, fields, "Delta")
    _check_names(state, fields)
    _check_levels(state, levels)
    used = {kind for field in fields for kind in _kinds(field)}
    return TableMetadata(
        schema=_struct(fields, ""),
        partition_columns=tuple(levels),
        protocol=_protocol(
            [
                *([_NTZ] if Kind.TIMESTAMP_NTZ in used else []),
                *([_SIDECARS] if has_sidecars(state) else []),
            ]
        ),
        properties=_PROPERTIES | _policy(state) | _skipping(state),
    )


def has_sidecars(state: State) -> bool:
    """Return whether checkpoints of the table have their files in sidecars.

    Those of a tree do, unless a property asks for checkpoints that every reader knows.
    """
    policy = state.descriptor.properties.get(publishing.CHECKPOINTS, publishing.BY_LEAF)
    return state.is_tree and policy == publishing.BY_LEAF


def _policy(state: State) -> dict[str, str]:
    return {"delta.checkpointPolicy": "v2"} if has_sidecars(state) else {}


def _check_names(state: State, fields: Sequence[Field]) -> None:
    for path, field in walk(fields):
        signs = sorted(_REFUSED.intersection(field.name))
        if signs:
            raise InvalidInputError(
                f"Field {path!r} of dataset {state.name!r} has {' and '.join(map(repr, signs))} in "
                "its name, which Delta refuses in tables without column mapping.",
                hint=f"Rename it, such as to {''.join('_' if c in _REFUSED else c for c in field.name)!r}"
                ", or publish an Iceberg table, which can hold the name.",
            )


def _check_levels(state: State, levels: Iterable[str]) -> None:
    """Check that names of partition fields stand in the paths as they are.

    Polars compares the levels of a path with the partition columns, and decodes none of them.
    """
    for name in levels:
        if quote(name, safe="") != name:
            raise InvalidInputError(
                f"Partition field {name!r} of dataset {state.name!r} is percent-encoded in paths, "
                "which some readers of Delta do not decode.",
                hint="Give it a name of letters of ASCII, digits, '_' and '-', as in "
                f"`hash({name}, 8) as part`, or publish an Iceberg table.",
            )


def _skipping(state: State) -> dict[str, str]:
    """Return the property that names the columns with usable statistics.

    Under pyarrow datasets, deltalake reads a missing bound as null and drops the file for any
    condition on the column. So the property names only columns with both bounds in every file: no
    floats, no booleans, no parts of records, and no field that files of older schemas lack.
    """
    added = state.lineage.additions
    oldest = _oldest_schema(state) if added else state.lineage.number
    names = [
        f"`{field.name}`"
        for field in shown_facts.bounded_fields(state)
        if shown_facts.has_both_bounds(field.type) and not state.lineage.lacks(field.name, oldest)
    ]
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(names)}


def _oldest_schema(state: State) -> int:
    """Return the number of the oldest schema among the files.

    Of a tree it is the first one: to know better, all leaves would be read for each publication.
    """
    if state.is_tree:
        return 1
    newest = state.lineage.number
    numbers = (
        schema_number_of(label, newest=newest) for piece in state.live.pieces() for label in piece
    )
    return min((number for number in numbers if number is not None), default=newest)


def _protocol(features: Sequence[str]) -> dict[str, Any]:
    writer = sorted({*features, WRITER_FEATURE, "invariants", "appendOnly"})
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(features),
        "writerFeatures": writer,
    }


def _struct(fields: Sequence[Field], path: str) -> dict[str, Any]:
    members = []
    for field in fields:
        metadata: dict[str, Any] = {"comment": field.doc} if field.doc else {}
        members.append(
            {
                "name": field.name,
                "type": _type(field.type, f"{path}{field.name}"),
                "nullable": field.nullable,
                "metadata": metadata,
            }
        )
    return {"type": "struct", "fields": members}


def _type(kind: Type, path: str) -> str | dict[str, Any]:
    match kind:
        case Primitive(bits=int(bits)):
            return "byte" if bits == 8 else "short"
        case Primitive(kind=primitive):
            if primitive not in _KINDS:
                raise InvalidInputError(
                    f"Field {path!r} is of type {kind}, which Delta does not have.",
                    hint="Store it as long, or as decimal(20, 0) where it is above 2^63.",
                )
            return _KINDS[primitive]
        case Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListOf(element=element, element_nullable=nullable):
            return {
                "type": "array",
                "elementType": _type(element, f"{path}[]"),
                "containsNull": nullable,
            }
        case MapOf(value=value, value_nullable=nullable, key=key):
            return {
                "type": "map",
                "keyType": _type(key, f"{path}{{key}}"),
                "valueType": _type(value, f"{path}{{}}"),
                "valueContainsNull": nullable,
            }
        case Struct(fields=fields):
            return _struct(fields, f"{path}.")


def _kinds(field: Field) -> Iterator[Kind]:
    inner: list[Type] = [field.type]
    while inner:
        kind = inner.pop()
        match kind:
            case Primitive(kind=primitive):
                yield primitive
            case ListOf(element=element):
                inner.append(element)
            case MapOf(value=value, key=key):
                inner += [key, value]
            case Struct(fields=fields):
                inner += [member.type for member in fields]


def widens(_have: Type, _wanted: Type) -> bool:
    """Return False: readers of a Delta table do not widen types.

    Delta has type widening as a reader feature, but deltalake 1.6 and Polars 2.1 refuse tables with
    it.
    """
    return False


def partition_text(value: Scalar, name: str) -> str | None:
    """Return the text of a partition value in the log.

    Raises:
        InvalidInputError: The value is the empty text, which Delta reads as null.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if not text:
        raise InvalidInputError(
            f"Partition field {name!r} holds the empty text, which Delta reads as null.",
            hint="Publish a dataset without this value, or partition by a function of the field.",
        )
    return text

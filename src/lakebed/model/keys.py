"""Keys of a dataset's objects, and the typed encoding of partition values in them.

The layout is Kartothek's, so that plateau reads what we write:
`<dataset>/data/<field=value>/…/batch_id=<ms>/<part>.parquet`.
"""

from __future__ import annotations

import re
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence

from lakebed.errors import CorruptMetadataError, InvalidInputError, PartitionSpecError
from lakebed.model.schema import Type
from lakebed.model.values import Scalar, format_value, parse_value

TABLE = "data"  # Kartothek's table name; gives Kite's /data/users/data/userId_hash=15
BATCH_ID = "batch_id"
JSON_SUFFIX = ".by-dataset-metadata.json"
MSGPACK_SUFFIX = ".by-dataset-metadata.msgpack.zstd"
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Data files of ours. Other tools name theirs otherwise, and write types as they like.
OWN_FILE_PREFIX = "part-"
_SCHEMA_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
MAX_COMPONENT_BYTES = 255  # longest file name on POSIX systems


def encode_level(name: str, value: Scalar) -> str:
    """Return one directory level, `name=value`.

    Every byte outside letters, digits and `_.-~` is percent-encoded, `/` included. Null is
    `__HIVE_DEFAULT_PARTITION__`; a genuine text of that form gets an encoded first letter, so
    that every value reads back as itself.

    Raises:
        PartitionSpecError: The level is too long for a file name.
    """
    if value is None:
        quoted = NULL_VALUE
    else:
        quoted = urllib.parse.quote(format_value(value), safe="")
        if quoted == NULL_VALUE:
            quoted = "%5F" + quoted[1:]
    level = f"{urllib.parse.quote(name, safe='')}={quoted}"
    if len(level) > MAX_COMPONENT_BYTES:
        raise PartitionSpecError(
            f"Partition value of field {name!r} needs {len(level)} bytes in a path: "
            f"{str(value)[:40]!r}…",
            hint=f"File names hold {MAX_COMPONENT_BYTES} bytes; partition by hash({name}, …).",
        )
    return level


def encode_path(values: Mapping[str, Scalar]) -> str:
    """Return the directory of a partition, relative to the table; empty without values."""
    return "/".join(encode_level(name, value) for name, value in values.items())


def decode_path(path: str, types: Mapping[str, Type]) -> dict[str, Scalar]:
    """Read partition values back, typed by the schema and never guessed.

    Args:
        path: Directory relative to the table, as `encode_path` or Kartothek writes it.
        types: Partition fields in order.

    Raises:
        CorruptMetadataError: The path does not name exactly these fields in this order,
            or a value is not of its type.
    """
    levels = path.split("/") if path else []
    if len(levels) != len(types):
        raise _mismatch(path, types)
    values: dict[str, Scalar] = {}
    for level, (name, kind) in zip(levels, types.items(), strict=True):
        raw_name, separator, raw_value = level.partition("=")
        if not separator or "=" in raw_value or urllib.parse.unquote(raw_name) != name:
            raise _mismatch(path, types)
        values[name] = _decode_value(raw_value, kind, name, path)
    return values


def _decode_value(raw: str, kind: Type, name: str, path: str) -> Scalar:
    if raw == NULL_VALUE:
        return None
    try:
        return parse_value(urllib.parse.unquote(raw, errors="strict"), kind, name)
    except (InvalidInputError, UnicodeDecodeError) as exc:
        raise CorruptMetadataError(
            f"Partition path {path!r} holds {raw!r} for field {name!r} of type {kind}.",
            hint="The path was not written for this schema.",
        ) from exc


def _mismatch(path: str, types: Sequence[str] | Mapping[str, Type]) -> CorruptMetadataError:
    wanted = "/".join(f"{name}=…" for name in types) or "no levels"
    return CorruptMetadataError(
        f"Partition path {path!r} does not have the form {wanted}.",
        hint="Data files of one dataset have the same partition fields in the same order.",
    )


def split_label(label: str) -> tuple[str, str]:
    """Return directory and file name of a label; the directory may be empty."""
    directory, _, tail = label.rpartition("/")
    return directory, tail


def new_file_name(schema_number: int) -> str:
    """Return a name for a data file, without suffix, that nobody else uses.

    It tells which schema the file is of: `part-<hex>` of the first, `part-<n>-<hex>` of a later
    one.
    """
    number = f"{schema_number}-" if schema_number > 1 else ""
    return f"{OWN_FILE_PREFIX}{number}{uuid.uuid4().hex}"


def schema_number_of(label: str, *, newest: int) -> int | None:
    """Return the number of the schema that a data file is of; None for a file of another tool.

    Args:
        label: Of the file.
        newest: The highest number that the dataset has.

    Raises:
        CorruptMetadataError: The name holds no number, or one that the dataset does not have.
    """
    tail = label.rpartition("/")[2]
    if not tail.startswith(OWN_FILE_PREFIX):
        return None
    text, dash, _ = tail[len(OWN_FILE_PREFIX) :].partition("-")
    if not dash:
        return 1
    number = int(text) if _SCHEMA_NUMBER.fullmatch(text) else 0
    if not 2 <= number <= newest:
        raise CorruptMetadataError(
            f"Data file {label!r} is of schema {text!r}, but the dataset has schemas 1 to {newest}.",
            hint="The head was damaged, or written by something else.",
        )
    return number


def partition_of(directory: str) -> str:
    """Return the partition that a batch directory belongs to, without its batch level."""
    parent, _, last = directory.rpartition("/")
    return parent if last.startswith(f"{BATCH_ID}=") else directory


def check_under(key: str, prefix: str) -> str:
    """Return `key` if it lies under `prefix`.

    Raises:
        CorruptMetadataError: It does not, or climbs out of it.
    """
    if not key.startswith(prefix) or ".." in key.split("/") or "\0" in key:
        raise CorruptMetadataError(
            f"Metadata refers to {key!r}, which is outside {prefix!r}.",
            hint="A dataset refers to its own objects only; nothing was read.",
        )
    return key

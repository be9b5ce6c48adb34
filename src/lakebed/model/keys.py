"""Labels of data files, `<field=value>/…/batch_id=<ms>/<part>`, and their partitions and batches.

`lakebed.model.layout` maps a label to the key of its file.
"""

from __future__ import annotations

import datetime as dt
import re
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptMetadataError, InvalidInputError, PartitionSpecError
from lakebed.model.names import MAX_COMPONENT_BYTES
from lakebed.model.schema import Type
from lakebed.model.values import Scalar, format_value, parse_value

BATCH_ID = "batch_id"
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Data files written by Lakebed. Other tools use other names, and other types for the same fields.
OWN_FILE_PREFIX = "part-"
# Files that existed before the dataset and were not moved: their names in the head encode their
# paths in the dataset's directory.
ADOPTED_PREFIX = "adopted-"
_LEAST_MILLISECONDS = 10**11
# Formats of batch ids that are dates, by length.
DATE_FORMATS = {12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
FIRST_YEAR, _LAST_YEAR = "1990", "2100"  # of batch ids that are dates
_BATCH_NUMBER = re.compile(r"[0-9]{1,18}")
# A batch id in stored documents; its directory has up to 18 digits.
BatchId = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
_SCHEMA_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_HEX_DIGITS = 32  # of a UUID
# For Python and for Arrow, which have no common anchor for the end of the text.
_OWN_FILE_NAME = re.compile(
    rf"(?:^|/){OWN_FILE_PREFIX}(?:{_SCHEMA_NUMBER.pattern}-)?([0-9a-f]{{{_HEX_DIGITS}}})$"
)

BATCH_IDS = "batch.ids"
"""The property of a dataset that names the form of its batch ids."""
FIRST_MOMENT = dt.datetime(int(FIRST_YEAR), 1, 1, tzinfo=dt.UTC)
"""Earlier ids are ambiguous: milliseconds look like seconds, and dates like milliseconds."""
_DIGITS_OF_MINUTES, _DIGITS_OF_SECONDS = 12, 14


def encode_level(name: str, value: Scalar) -> str:
    """Return one directory level, `name=value`.

    Every byte outside letters, digits and `_.-~` is percent-encoded, `/` included. Null is
    `__HIVE_DEFAULT_PARTITION__`; a genuine text of that form gets an encoded first letter, so
    that every value is read back unchanged.

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
    """Read the partition values of a path, typed by the schema and never guessed.

    Args:
        path: Directory relative to the table, as written by `encode_path` or Kartothek.
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


def level_names(path: str) -> tuple[str, ...]:
    """Return the names of the levels of a path, which may be empty.

    >>> level_names("time%20hour=7/batch_id=1")
    ('time hour', 'batch_id')
    """
    levels = path.split("/") if path else []
    return tuple(urllib.parse.unquote(level.partition("=")[0]) for level in levels)


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


def adopted_file_name(path: str) -> str:
    """Return the name in labels for a file that existed before the dataset.

    Args:
        path: Path relative to the dataset's directory.
    """
    return ADOPTED_PREFIX + urllib.parse.quote(path, safe="")


def is_adopted(label: str) -> bool:
    """Return whether a label is that of a file that existed before the dataset."""
    return label.rpartition("/")[2].startswith(ADOPTED_PREFIX)


def split_label(label: str) -> tuple[str, str]:
    """Return directory and file name of a label; the directory may be empty."""
    directory, _, tail = label.rpartition("/")
    return directory, tail


def new_file_name(schema_number: int) -> str:
    """Return a unique name for a data file, without suffix.

    The name holds the number of the schema: `part-<hex>` for the first, `part-<n>-<hex>` for a
    later one.
    """
    number = f"{schema_number}-" if schema_number > 1 else ""
    return f"{OWN_FILE_PREFIX}{number}{uuid.uuid4().hex}"


def schema_number_of(label: str, *, newest: int) -> int | None:
    """Return the number of the schema of a data file; None for a file of another tool.

    Args:
        label: Label of the file.
        newest: The highest schema number of the dataset.

    Raises:
        CorruptMetadataError: The name holds no schema number, or one that the dataset lacks.
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
            hint="The head was damaged, or written by another tool.",
        )
    return number


def file_id(label: str) -> int | None:
    """Return the number that identifies a data file in indices; None for a file of another tool.

    It is computed from the random part of the file's name: the task that writes a file knows it,
    and numbers need not be assigned. Among a million files, the probability that two have the same
    number is 1 in 10 million.

    >>> file_id("dt=2013-01-01/batch_id=1/part-0123456789abcdef0123456789abcdee")
    0
    """
    match = _OWN_FILE_NAME.search(label)
    if match is None or label.endswith("\n"):
        return None
    # Some bits of each half are fixed in a random UUID, but they differ between the halves.
    text = match[1]
    return (int(text[:16], 16) ^ int(text[16:], 16)) >> 1


def file_ids(labels: Sequence[str] | pa.Array) -> np.ndarray:
    """Return the `file_id` of each label as int64, with -1 instead of None."""
    import pyarrow.compute as pc

    texts = labels if isinstance(labels, pa.Array) else pa.array(labels, pa.string())
    ids = np.full(len(texts), -1, dtype=np.int64)
    is_own = pc.match_substring_regex(texts, _OWN_FILE_NAME.pattern)
    own = texts.filter(is_own).cast(pa.binary())
    digits = b"".join(pc.binary_slice(own, -_HEX_DIGITS, None).to_pylist())
    halves = np.frombuffer(bytes.fromhex(digits.decode()), dtype=">u8").reshape(-1, 2)
    numbers = (halves[:, 0] ^ halves[:, 1]) >> np.uint64(1)
    ids[is_own.to_numpy(zero_copy_only=False)] = numbers.astype(np.int64)
    return ids


def batch_id_of(label: str) -> int | None:
    """Return the batch in whose directory a data file lies; None if it lies in none.

    >>> batch_id_of("dt=2013-01-01/batch_id=1449784608123/part-0"), batch_id_of("dt=2013-01-01/x")
    (1449784608123, None)
    """
    level = split_label(split_label(label)[0])[1]
    name, _, value = level.partition("=")
    return int(value) if name == BATCH_ID and _BATCH_NUMBER.fullmatch(value) else None


def started_ms(batch_id: int) -> int:
    """Return the epoch millisecond at which the run of a batch began, for every form of ids.

    The forms do not overlap: read as milliseconds, seconds lie in 1973 or before, dates in 1976 or
    2600.

    >>> started_ms(1449784608), started_ms(1449784608123), started_ms(201512102156)
    (1449784608000, 1449784608123, 1449784560000)
    """
    moment = date_of(batch_id)
    if moment is not None:
        return int(moment.timestamp() * 1000)
    return batch_id * 1000 if is_in_seconds(batch_id) else batch_id


def is_in_seconds(batch_id: int) -> bool:
    """Return whether a batch id counts seconds since the epoch."""
    return batch_id < _LEAST_MILLISECONDS


def date_of(batch_id: int) -> dt.datetime | None:
    """Return the moment that a batch id of digits `yyyyMMddHHmm[ss]` encodes; None for other ids.

    >>> date_of(201512102156), date_of(1449784608123)
    (datetime.datetime(2015, 12, 10, 21, 56, tzinfo=datetime.timezone.utc), None)
    """
    text = str(batch_id)
    date_format = DATE_FORMATS.get(len(text))
    if date_format is None or not FIRST_YEAR <= text[:4] <= _LAST_YEAR:
        return None
    try:
        return dt.datetime.strptime(text, date_format).replace(tzinfo=dt.UTC)
    except ValueError:
        return None


def is_own_name(label: str) -> bool:
    """Return whether a data file has a name of the form of `new_file_name`."""
    return _OWN_FILE_NAME.search(label) is not None


def partition_of(directory: str) -> str:
    """Return the partition that a batch directory belongs to, without its batch level."""
    parent, _, last = directory.rpartition("/")
    return parent if last.startswith(f"{BATCH_ID}=") else directory


def partition_of_label(label: str) -> str:
    """Return the partition that a data file lies in.

    >>> partition_of_label("dt=2013-01-01/batch_id=1449784608123/part-1")
    'dt=2013-01-01'
    """
    return partition_of(split_label(label)[0])


def check_under(key: str, prefix: str) -> str:
    """Return `key` if it lies under `prefix`.

    Raises:
        CorruptMetadataError: It does not lie under `prefix`, or leads out of it by `..`.
    """
    if not key.startswith(prefix) or ".." in key.split("/") or "\0" in key:
        raise CorruptMetadataError(
            f"Metadata refers to {key!r}, which is outside {prefix!r}.",
            hint="A dataset refers to its own objects only; nothing was read.",
        )
    return key


class BatchIds(StrEnum):
    """Forms of batch ids. A batch id is a whole number that encodes the start of the run in UTC.

    >>> moment = dt.datetime(2015, 12, 10, 21, 56, 48, tzinfo=dt.UTC)
    >>> [one.of(moment) for one in BatchIds]
    [1449784608000, 1449784608, 201512102156, 20151210215648]
    """

    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    DATE_MINUTES = "yyyyMMddHHmm"
    DATE_SECONDS = "yyyyMMddHHmmss"

    @classmethod
    def named_by(cls, properties: Mapping[str, str]) -> BatchIds:
        """Return the form that the properties of a dataset name; milliseconds by default.

        Raises:
            InvalidInputError: The form is unknown.
        """
        text = properties.get(BATCH_IDS, str(cls.MILLISECONDS))
        try:
            return cls(text)
        except ValueError as exc:
            raise InvalidInputError(
                f"Property {BATCH_IDS!r} is {text!r}.", hint=f"Known are: {', '.join(cls)}."
            ) from exc

    @classmethod
    def written_as(cls, batch_id: int) -> BatchIds:
        """Return the form of a batch id, which its number of digits shows.

        >>> BatchIds.written_as(1449784608), BatchIds.written_as(201512102156)
        (<BatchIds.SECONDS: 'seconds'>, <BatchIds.DATE_MINUTES: 'yyyyMMddHHmm'>)
        """
        if date_of(batch_id) is not None:
            is_minutes = len(str(batch_id)) == _DIGITS_OF_MINUTES
            return cls.DATE_MINUTES if is_minutes else cls.DATE_SECONDS
        return cls.SECONDS if is_in_seconds(batch_id) else cls.MILLISECONDS

    @property
    def _digits(self) -> int | None:
        """The length of ids that are dates; None for other forms."""
        return {self.DATE_MINUTES: _DIGITS_OF_MINUTES, self.DATE_SECONDS: _DIGITS_OF_SECONDS}.get(
            self
        )

    @property
    def step(self) -> dt.timedelta:
        """The time between one id and the next."""
        match self:
            case BatchIds.MILLISECONDS:
                return dt.timedelta(milliseconds=1)
            case BatchIds.DATE_MINUTES:
                return dt.timedelta(minutes=1)
        return dt.timedelta(seconds=1)

    def of(self, moment: dt.datetime) -> int:
        """Return the id of a moment."""
        if self._digits is not None:
            return int(moment.astimezone(dt.UTC).strftime(DATE_FORMATS[self._digits]))
        seconds = moment.timestamp()
        return int(seconds * 1000) if self is BatchIds.MILLISECONDS else int(seconds)

    def after(self, batch_id: int) -> int:
        """Return the next id of this form above another id of any form.

        >>> BatchIds.DATE_MINUTES.after(201512312359), BatchIds.SECONDS.after(1449784608)
        (201601010000, 1449784609)
        """
        following = batch_id + 1
        if self._digits is None or len(str(following)) != self._digits:
            return following
        # The limit of a cleanup may lie between two dates, such as at minute 60.
        moment = date_of(following) or _rounded_up(following, self._digits)
        return following if moment is None else max(self.of(moment), following)


def _rounded_up(number: int, digits: int) -> dt.datetime | None:
    """Return the sum of the day and the time parts of a number; None if the day is not valid."""
    text = str(number)
    day = date_of(int(text[:8].ljust(digits, "0")))
    if day is None:
        return None
    seconds = int(text[12:] or 0)
    return day + dt.timedelta(hours=int(text[8:10]), minutes=int(text[10:12]), seconds=seconds)

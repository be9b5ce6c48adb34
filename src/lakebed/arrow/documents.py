"""JSON documents as entities of a schema, or errors that give the reason."""

from __future__ import annotations

import base64
import binascii
import decimal
import functools
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from lakebed.errors import SchemaMismatchError
from lakebed.model.schema import (
    TEXT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)
from lakebed.model.values import FLOATS, TIMESTAMPS, parse_value

_FLOAT_NAMES = frozenset({"NaN", "Infinity", "-Infinity"})
_TEXTUAL = TIMESTAMPS | {Kind.DATE}
# Errors of a decoder for bytes that are not JSON, too deep, or hold a number beyond Decimal.
BAD_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError, decimal.DecimalException)

# Decimals keep their digits; a double is made from them where the field is one.
_decoder = msgspec.json.Decoder(float_hook=decimal.Decimal)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_encoder = msgspec.json.Encoder(decimal_format="number")


def entity_of(data: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """Read a JSON object as an entity that has no other fields than these.

    Values are converted where JSON has no type of their own; they are checked when a
    record batch is made of them. Of a repeated name the last value is used.

    Raises:
        SchemaMismatchError: It is not a JSON object, or a text is not a value of its field.
    """
    return entity_from(decode_object(data), fields)


def entity_from(document: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Convert a decoded JSON object to an entity; see `entity_of`.

    Raises:
        SchemaMismatchError: A text is not a value of its field.
    """
    return _from_object(document, fields, "", is_open=False)


def is_cut_object(data: bytes) -> bool:
    """Return whether bytes are the begin of a JSON object, and lack its end.

    >>> is_cut_object(b'{"n": [1, 2'), is_cut_object(b'{"n": 1}'), is_cut_object(b"garbage")
    (True, False, False)
    """
    if not data.lstrip().startswith(b"{"):
        return False
    # The decoder also reports half of a surrogate pair near the end as a text that ends early.
    return _is_truncated(data) and _is_truncated(_without_surrogates(data))


def _without_surrogates(data: bytes) -> bytes:
    return _SURROGATE.sub(rb"\\u0041", data)


def _is_truncated(data: bytes) -> bool:
    try:
        _decoder.decode(data)
    except msgspec.MsgspecError as exc:
        return "truncated" in str(exc)
    except BAD_JSON:
        return False
    return False


@contextmanager
def at_row(position: int) -> Iterator[None]:
    """Add the row of the data to an error that is raised inside."""
    try:
        yield
    except SchemaMismatchError as exc:
        exc.row = position
        raise


def decode_object(data: bytes) -> dict[str, Any]:
    """Read a JSON object without conversions; numbers with a point or exponent are decimals.

    Raises:
        SchemaMismatchError: It is not a JSON object.
    """
    document = _decode(data)
    if not isinstance(document, dict):
        raise SchemaMismatchError.of_line(
            "This is not a JSON object.", hint="Give one object a line."
        )
    return document


class DocumentReader:
    """Reads some fields of JSON objects and passes over the others, however large they are.

    >>> from lakebed.model.schema import Primitive
    >>> reader = DocumentReader((Field(name="n", type=Primitive(Kind.LONG)),))
    >>> reader.read(b'{"n": 1, "rest": [1.5, {"deep": null}]}')
    {'n': 1}
    """

    def __init__(self, fields: Sequence[Field], texts: Collection[str] = ()) -> None:
        """Prepare to read some fields.

        Args:
            fields: The fields.
            texts: Paths of text fields that take a value of any other type as its JSON text, as the
                sources of dimensions do.
        """
        self._fields = tuple(fields)
        self._texts = texts
        # Members get names of our own: a field may be called like a keyword of Python.
        names = {f"field_{n}": field.name for n, field in enumerate(fields)}
        members = [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in names]
        document = msgspec.defstruct("Document", members, rename=names)
        self._decoder = msgspec.json.Decoder(document)

    def read(self, data: bytes) -> dict[str, Any]:
        """Return the fields that the object has; nested fields that are not asked for are left out.

        Raises:
            SchemaMismatchError: It is not a JSON object, or a text is not a value of its field.
        """
        try:
            values = msgspec.structs.astuple(self._decoder.decode(data))
        except BAD_JSON as exc:
            raise _no_json(exc, data) from exc
        return {
            field.name: from_json(
                _decode(raw), field.type, field.name, is_open=True, texts=self._texts
            )
            for field, raw in zip(self._fields, values, strict=True)
            if raw is not msgspec.UNSET
        }


def document_reader(fields: tuple[Field, ...], texts: frozenset[str]) -> DocumentReader:
    """Return a reader of these fields, a cached one if possible; see `DocumentReader`."""
    return _cached_reader(fields, texts, repr(fields))


@functools.lru_cache(maxsize=16)
def _cached_reader(
    fields: tuple[Field, ...],
    texts: frozenset[str],
    text: str,  # noqa: ARG001 - fields are equal whose defaults are 1 and True
) -> DocumentReader:
    return DocumentReader(fields, texts)


def compact(document: Mapping[str, Any]) -> str:
    """Return a document as JSON without blanks.

    Raises:
        SchemaMismatchError: JSON cannot represent a value in it.
    """
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as exc:
        raise SchemaMismatchError(
            f"Cannot write a document as JSON: {exc}.", hint="Give text, numbers, lists and dicts."
        ) from exc


def _decode(data: bytes | msgspec.Raw) -> Any:
    try:
        return _decoder.decode(data)
    except BAD_JSON as exc:
        raise _no_json(exc, data) from exc


def _no_json(cause: Exception, data: bytes | msgspec.Raw) -> SchemaMismatchError:
    if "truncated" in str(cause) and not _is_truncated(_without_surrogates(bytes(data))):
        reason = "a text has half of a surrogate pair"
    elif isinstance(cause, RecursionError):
        reason = "it is nested too deep"
    elif isinstance(cause, decimal.DecimalException):
        reason = "a number is out of range"
    else:
        reason = str(cause).rstrip(".")
    return SchemaMismatchError.of_line(
        f"This is not JSON: {reason}.", hint="Give one JSON object a line."
    )


def _from_object(
    document: Mapping[str, Any],
    fields: Sequence[Field],
    place: str,
    *,
    is_open: bool,
    texts: Collection[str] = (),
) -> dict[str, Any]:
    """Convert the known fields; the code that takes the entity rejects the others by name."""
    types = {field.name: field.type for field in fields}
    return {
        name: from_json(value, types[name], f"{place}{name}", is_open=is_open, texts=texts)
        if name in types
        else value
        for name, value in document.items()
        if name in types or not is_open
    }


def from_json(
    value: Any, kind: Type, place: str, *, is_open: bool, texts: Collection[str] = ()
) -> Any:
    """Convert values of types that JSON lacks."""
    match kind, value:
        case ListOf(), list():
            return [
                from_json(element, kind.element, f"{place}[]", is_open=is_open) for element in value
            ]
        case MapOf(), dict():
            return _from_map(value, kind, place, is_open=is_open)
        case Struct(), dict():
            return _from_object(value, kind.fields, f"{place}.", is_open=is_open, texts=texts)
        case ((Primitive() | Decimal()), str()):
            return _from_text(value, kind, place)
        case Primitive(kind=Kind.STRING), _ if value is not None and place in texts:
            return _encoder.encode(value).decode()
        case Primitive(), decimal.Decimal():
            return _to_float(value, place)
    return value


def _from_map(
    value: Mapping[str, Any], kind: MapOf, place: str, *, is_open: bool
) -> dict[Any, Any]:
    """Convert the keys of a map, which are texts in JSON, and its values."""
    converted = {
        _from_key(key, kind.key, f"{place}{{key}}"): from_json(
            item, kind.value, f"{place}{{}}", is_open=is_open
        )
        for key, item in value.items()
    }
    if len(converted) < len(value):
        raise SchemaMismatchError(
            f"Two keys of map {place!r} are equal as {kind.key}: {', '.join(value)[:80]}.",
            hint="Give each key once.",
        )
    return converted


def _from_key(text: str, kind: Primitive | Decimal, place: str) -> Any:
    converted = _from_text(text, kind, place)
    is_text = isinstance(converted, str) and kind != TEXT
    return parse_value(text, kind, place) if is_text else converted


def _to_float(number: decimal.Decimal, place: str) -> float:
    double = float(number)
    if math.isinf(double):
        raise SchemaMismatchError(
            f"Number {number} is too large for column {place!r}.",
            hint='Write infinity in JSON as the text "Infinity".',
        )
    return double


def _from_text(text: str, kind: Primitive | Decimal, place: str) -> Any:
    if isinstance(kind, Decimal) or kind.kind in _TEXTUAL:
        return parse_value(text, kind, place)
    if kind.kind in FLOATS and text in _FLOAT_NAMES:
        return float(text)
    if kind.kind is Kind.BYTES:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise SchemaMismatchError(
                f"Text {text[:40]!r} is not base64 (column {place!r}).",
                hint="Write bytes in JSON as base64.",
            ) from exc
    return text

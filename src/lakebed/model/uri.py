"""URIs of repositories, datasets and views, in Kite's forms.

- `repo:s3://bucket/lake`
- `dataset:s3://bucket/lake/flights`
- `view:s3://bucket/lake/flights?carrier=UA,B6&time_hour=[2013-06-01T00:00:00Z,)`

In a view, `f=a,b` is a set, `f=in()` the set of the empty text alone, `f=exists()` any value, and
`f=[a,b)`, `(a,]` or `[,b]` a range, where an empty end is open. Text is form-encoded, bytes are
base64url of their Avro form. Names that begin with `@` are not fields: `@where` holds conditions
that have no other form, as SQL; `@version` is the version of a dataset to read.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.locations import refuse_credentials
from lakebed.model.names import nearest
from lakebed.model.predicate import (
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    check_columns,
    columns_of,
    conjuncts,
    normalise,
)
from lakebed.model.refinement import LOWER, UPPER, set_of
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.sql_predicates import parse_sql
from lakebed.model.values import Scalar, compared_value, parse_value

UriKind = Literal["repo", "dataset", "view"]
KINDS: tuple[UriKind, ...] = ("repo", "dataset", "view")
WHERE = "@where"
VERSION = "@version"

_EXISTS = "exists()"
_EMPTY_TEXT = "in()"
_RANGE = re.compile(r"([\[(])([^,]*),([^,]*)([\])])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The repository, dataset or view that a URI names.

    Attributes:
        kind: The kind of object that the URI names.
        location: URL or path of the repository.
        name: Name of the dataset; empty for a repository.
        version: Version of the dataset; None for the current one.
        constraints: Constraints of a view by field, in the form of the URI.
    """

    kind: UriKind
    location: str
    name: str = ""
    version: int | None = None
    constraints: tuple[tuple[str, str], ...] = ()


def parse_uri(text: str) -> Address:
    """Parse a URI; nothing is opened.

    Raises:
        InvalidInputError: The URI has an unknown form, or holds a key.

    >>> parse_uri("view:/data/lake/flights?carrier=UA").name
    'flights'
    """
    kind, target = _split_kind(text)
    refuse_credentials(target)
    path, _, query = target.partition("?")
    path = path.rstrip("/") or path[:1]
    if path.startswith("file:") and not path.startswith("file:/"):
        path = path.removeprefix("file:")  # relative, as in Kite
    fields = _split_query(query, text)
    if kind == "repo":
        _refuse(fields, text, "a repository has no query")
        return Address(kind=kind, location=_checked_location(path, text))
    location, _, name = path.rpartition("/")
    version = _read_version(fields.pop(VERSION, None), text)
    if kind == "dataset":
        _refuse(fields, text, "a dataset has no constraints; write view: instead")
    return Address(
        kind=kind,
        location=_checked_location(location or "/" * path.startswith("/"), text),
        name=name,
        version=version,
        constraints=tuple(fields.items()),
    )


def _split_kind(text: str) -> tuple[UriKind, str]:
    scheme, colon, rest = text.partition(":")
    for kind in KINDS:
        if colon and scheme == kind:
            return kind, rest
    raise InvalidInputError(
        f"{text!r} is not a URI of a repository, dataset or view.",
        hint=nearest(scheme, KINDS)
        or "Forms are repo:LOCATION, dataset:LOCATION/NAME and view:LOCATION/NAME?field=value.",
    )


def _checked_location(location: str, text: str) -> str:
    if not location or location.endswith((":", ":/")):
        raise InvalidInputError(
            f"{text!r} names no location.",
            hint="Write repo:LOCATION, or dataset:LOCATION/NAME, such as dataset:/data/lake/flights.",
        )
    return location


def _split_query(query: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        key, sign, value = part.partition("=")
        name = urllib.parse.unquote_plus(key)
        if not sign or not name:
            raise InvalidInputError(
                f"{part!r} in {text!r} is not a constraint.",
                hint="Write field=value, or field=exists() for any value.",
            )
        if name in found:
            raise InvalidInputError(
                f"{name!r} appears twice in {text!r}.", hint="Write one constraint per field."
            )
        found[name] = value
    return found


def _refuse(fields: Mapping[str, str], text: str, why: str) -> None:
    for name in fields:
        raise InvalidInputError(f"{text!r} has the query field {name!r}: {why}.")


def _read_version(value: str | None, text: str) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise InvalidInputError(
            f"Version {value!r} in {text!r} is not a whole number.", hint=f"Write {VERSION}=3."
        )
    return int(value)


def parse_constraints(
    constraints: Sequence[tuple[str, str]], types: Mapping[str, Type]
) -> Predicate:
    """Read the constraints of a view.

    Args:
        constraints: The constraints of an `Address`.
        types: Types of the columns that a predicate may name.

    Raises:
        PredicateError: A field is unknown (ignoring it would widen the view), or a form or value
            does not fit the field.
    """
    parts: list[Predicate] = []
    for name, form in constraints:
        if name == WHERE:
            parts.append(parse_sql(urllib.parse.unquote_plus(form), types))
            continue
        if name.startswith("@"):
            raise PredicateError(
                f"Unknown query field {name!r}.", hint=f"Known are {WHERE} and {VERSION}."
            )
        check_columns(NullCheck(name), types)
        parts.append(normalise(_parse_form(name, form, types[name]), types))
    return all_of(parts)


def _parse_form(name: str, form: str, kind: Type) -> Predicate:
    if form in ("", _EXISTS):
        return NullCheck(name, negated=True)
    if form == _EMPTY_TEXT:
        return Membership(name, ("",))
    if form[0] in "[(" or form[-1] in "])":
        return _parse_range(name, form, kind)
    return Membership(name, tuple(_parse_value(text, kind, name) for text in form.split(",")))


def _parse_range(name: str, form: str, kind: Type) -> Predicate:
    found = _RANGE.fullmatch(form)
    if found is None or not (found[2] or found[3]):
        raise PredicateError(
            f"{name}={form} is not a range.",
            hint="Write [a,b], (a,b), [a,) or (,b]; a bracket in a text as %5B, %28, %5D or %29.",
        )
    opening, low, high, closing = found.groups()
    parts: list[Predicate] = []
    if low:
        op = Op.GE if opening == "[" else Op.GT
        parts.append(Comparison(name, op, _parse_value(low, kind, name)))
    if high:
        op = Op.LE if closing == "]" else Op.LT
        parts.append(Comparison(name, op, _parse_value(high, kind, name)))
    return all_of(parts)


def _parse_value(text: str, kind: Type, name: str) -> Scalar:
    try:
        if kind == Primitive(Kind.BYTES):
            return _bytes_from_avro(text, name)
        return parse_value(
            urllib.parse.unquote_plus(text, errors="strict"), kind, name, compared_value
        )
    except UnicodeDecodeError as exc:
        raise PredicateError(f"{name}={text} is not UTF-8.", hint="Form-encode the text.") from exc
    except InvalidInputError as exc:
        raise PredicateError(exc.message, hint=exc.hint) from exc


def view_query(
    constraint: Predicate, types: Mapping[str, Type] | None = None, *, normalised: bool = False
) -> str:
    """Return the query of a view's URI; empty if nothing is constrained.

    Args:
        constraint: The constraint of the view.
        types: Types of the fields; with them, 32-bit floats get their short form.
        normalised: Sort the fields by name and the values of a set as text, so that the same
            constraints give the same text in any order.

    >>> view_query(Membership("value", (45, 123))), view_query(
    ...     Membership("value", (45, 123)), normalised=True)
    ('value=45,123', 'value=123,45')
    """
    by_field: dict[str, list[Predicate]] = {}
    remaining: list[Predicate] = []
    for part in conjuncts(constraint):
        names = columns_of(part)
        # In a query, a name that begins with @ is not a field; in SQL it can be.
        if isinstance(part, Comparison | Membership | NullCheck) and names[0][:1] != "@":
            by_field.setdefault(names[0], []).append(part)
        else:
            remaining.append(part)
    terms: list[tuple[str, str]] = []
    for name, parts in by_field.items():
        is_float = types is not None and types.get(name) == Primitive(Kind.FLOAT)
        form = _form(parts, is_float=is_float, normalised=normalised)
        if form is None:
            remaining += parts
        else:
            terms.append((_quote(name), form))
    if remaining:
        texts = sorted(map(str, remaining)) if normalised else [str(part) for part in remaining]
        sql = texts[0] if len(texts) == 1 else " AND ".join(f"({one})" for one in texts)
        terms.append((WHERE, _quote(sql)))
    return "&".join(f"{name}={form}" for name, form in (sorted(terms) if normalised else terms))


def _form(parts: list[Predicate], *, is_float: bool, normalised: bool) -> str | None:
    """Return the conditions on one field in the form of a URI; None if they need SQL."""
    if len(parts) == 1:
        (part,) = parts
        if isinstance(part, NullCheck) and part.negated:
            return _EXISTS
        values = set_of(part)
        if values == ("",):
            return _EMPTY_TEXT
        if values is not None:
            texts = [_format_value(value, is_float=is_float) for value in values]
            return ",".join(sorted(texts) if normalised else texts)
    ends = [part for part in parts if isinstance(part, Comparison)]
    lower = [part for part in ends if part.op in LOWER]
    upper = [part for part in ends if part.op in UPPER]
    if len(lower) > 1 or len(upper) > 1 or len(lower) + len(upper) < len(parts):
        return None
    # An empty text would read as an open end.
    if any(part.value == "" for part in ends):
        return None
    low, high = (
        [_format_value(part.value, is_float=is_float) for part in side] for side in (lower, upper)
    )
    opening = "[" if any(part.op is Op.GE for part in lower) else "("
    closing = "]" if any(part.op is Op.LE for part in upper) else ")"
    return f"{opening}{''.join(low)},{''.join(high)}{closing}"


def _format_value(value: Scalar, *, is_float: bool) -> str:
    if is_float and isinstance(value, float):
        return _quote(str(np.float32(value)))  # 5.6, not 5.599999904632568
    if isinstance(value, bytes):
        return _bytes_to_avro(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        text = value.isoformat()
        return _quote(text.removesuffix("+00:00") + "Z" if value.tzinfo else text, safe=":")
    return _quote(str(value))


def _quote(text: str, safe: str = "") -> str:
    """Form-encode as Java does, which keeps `*` and encodes `~`."""
    return urllib.parse.quote_plus(text, safe=safe + "*").replace("~", "%7E")


def _bytes_to_avro(value: bytes) -> str:
    """Return base64url of the length, a variable-length zigzag number, and the bytes."""
    length, number = bytearray(), len(value) << 1
    while number > 0x7F:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    length.append(number)
    return base64.urlsafe_b64encode(bytes(length) + value).decode("ascii").rstrip("=")


def _bytes_from_avro(text: str, name: str) -> bytes:
    try:
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    number, position = 0, 0
    for position, byte in enumerate(data[:9]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            break
    value = data[position + 1 :]
    if not data or number & 1 or number >> 1 != len(value):
        raise PredicateError(
            f"{name}={text} is not a form of bytes.",
            hint="Write them as base64url of their Avro form: BmFiYw for 'abc'.",
        )
    return value


__all__ = ["Address", "parse_constraints", "parse_uri", "view_query"]

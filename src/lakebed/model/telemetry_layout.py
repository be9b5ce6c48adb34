"""The directory layout of Mozilla's telemetry files, for importing such trees.

A file is `<base>/<d1>/…/<d4>/<d5>.<d6>.v<version>.log`: its name holds the last two dimensions. The
layout does not distinguish `OTHER` and `UNKNOWN` from genuine values, and writes `_` for characters
other than letters, digits, `_` and `.`; Lakebed's own partitions have neither weakness.
"""

from __future__ import annotations

import posixpath
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.model.allowed import OTHER, UNKNOWN, AllowedValues, AnyValue, Between, OneOf
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.schema import Kind, Primitive
from lakebed.model.values import Scalar

_UNSAFE = re.compile(r"[^a-zA-Z0-9_/.]")
_STRING = Primitive(Kind.STRING)
# Tokens on disk; the two writers of such trees spell them differently.
_TOKENS = frozenset({OTHER, OTHER.lower(), UNKNOWN})
_FILE_NAME = re.compile(r"(?P<values>.*)\.v(?P<version>[0-9]+)\.log(\.[0-9a-f]{32}\.[a-z0-9]+)?")


def safe_name(value: str) -> str:
    """Return a value in the form of the layout's paths.

    >>> safe_name("saved-session")
    'saved_session'
    """
    return _UNSAFE.sub("_", value)


def limited(schema: DimensionSchema, values: Sequence[object] | None) -> tuple[str, ...]:
    """Return one value for each dimension, limited to those that the schema allows.

    A value that is not allowed becomes `OTHER`, None becomes `UNKNOWN`. Missing values at the end
    become `OTHER`, further values are dropped.
    """
    given = tuple(values or ())[: len(schema)]
    texts = [_limited(rule.allowed, value) for rule, value in zip(schema, given, strict=False)]
    return (*texts, *[OTHER] * (len(schema) - len(texts)))


def _limited(allowed: AllowedValues, value: object) -> str:
    if value is None:
        return UNKNOWN
    text = value if isinstance(value, str) else str(value)
    return text if allowed.bind(_STRING, "allowed values").allows(text) else OTHER


def dimensions_of(
    schema: DimensionSchema, record: Mapping[str, Any], submission_date: str
) -> tuple[str, ...]:
    """Return the dimensions of a record; a missing field is `UNKNOWN`.

    Args:
        schema: The dimensions, with the date of submission last.
        record: Values by field.
        submission_date: The date on which the record arrived, which it does not hold itself.
    """
    values = [record.get(name) for name in schema.names[:-1]]
    return limited(schema, [*values, submission_date])


def dimension(
    schema: DimensionSchema,
    values: Sequence[str],
    name: str,
    *,
    is_limited: bool = False,
    is_safe: bool = False,
) -> str:
    """Return the value of one dimension.

    Args:
        schema: The dimensions.
        values: Values of the first dimensions, in order.
        name: Name of the dimension.
        is_limited: Return `OTHER` for a value that is not allowed.
        is_safe: Return the value in the form of paths.

    Raises:
        InvalidInputError: The dimension is unknown, or has no value.
    """
    position = schema.position(name)
    if position >= len(values):
        raise InvalidInputError(
            f"Dimension {name!r} is the {position + 1}th, but there are {len(values)} values.",
            hint="Give a value for each dimension.",
        )
    value = values[position]
    if is_limited:
        value = _limited(schema.get(name).allowed, value)
    return safe_name(value) if is_safe else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Paths, sorted by a schema.

    Attributes:
        included: Paths whose dimensions are all allowed.
        excluded: Paths with a dimension that is not allowed.
        refused: Paths that are not of the layout, with the reason.
    """

    included: tuple[str, ...]
    excluded: tuple[str, ...]
    refused: Mapping[str, str]

    def sample(
        self, fraction: float, *, seed: int | None = 42, limit: int | None = None
    ) -> tuple[str, ...]:
        """Return some of the included files, the same ones for the same seed.

        Whole files are chosen, so the records of the sample are not representative.

        Args:
            fraction: Fraction of the files, 0 to 1; their number is rounded down.
            seed: Seed of the choice; None for another choice each time.
            limit: Number of first files to return instead of a sample.

        Raises:
            InvalidInputError: The fraction is not between 0 and 1, or the limit is negative.
        """
        if not 0 <= fraction <= 1 or (limit or 0) < 0:
            raise InvalidInputError(
                f"Cannot take a sample of {fraction!r} with limit {limit!r}.",
                hint="Give a fraction of 0 to 1, and no negative limit.",
            )
        if limit is not None:
            return self.included[:limit]
        count = int(len(self.included) * fraction)
        chosen = random.Random(seed).sample(range(len(self.included)), count)
        return tuple(self.included[position] for position in sorted(chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryLayout:
    """The layout of the files of a telemetry tree.

    Attributes:
        schema: The dimensions.
        base: Directory of the tree; empty for the current one.
        named: How many of the last dimensions are part of the name of the file; 0 for trees in
            which every dimension is a directory, and files have any name.

    >>> text = '''{"version": 1, "dimensions": [{"field_name": "reason", "allowed_values": "*"},
    ...     {"field_name": "build", "allowed_values": "*"},
    ...     {"field_name": "date", "allowed_values": "*"}]}'''
    >>> layout = TelemetryLayout(schema=DimensionSchema.from_json(text), base="foo")
    >>> layout.path(["saved-session", "28.0a1", "20131113"])
    'foo/saved_session/28.0a1.20131113.v1.log'
    >>> layout.values("foo/saved_session/28.0a1.20131113.v1.log")
    {'reason': 'saved_session', 'build': '28.0a1', 'date': '20131113'}
    """

    schema: DimensionSchema
    base: str = ""
    named: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.named <= len(self.schema):
            raise InvalidInputError(
                f"The name of a file cannot hold {self.named} of {len(self.schema)} dimensions.",
                hint=f"Give 0 to {len(self.schema)}.",
            )

    def path(self, values: Sequence[object] | None, version: int = 1) -> str:
        """Return the file of some dimensions, as the schema limits them.

        Raises:
            InvalidInputError: A value cannot be read back from the path: it is empty, or holds `/`,
                or `.` where that is the separator.
        """
        parts = [safe_name(value) for value in limited(self.schema, values)]
        levels = parts[: len(parts) - self.named]
        name = ".".join(parts[len(levels) :] or ["records"])
        path = posixpath.normpath(self.base or ".") + "/"
        path += "/".join([*levels, f"{name}.v{version}.log"])
        try:
            parts_of_path = list(self.values(path).values())
        except InvalidInputError:
            parts_of_path = []
        if parts_of_path != parts:
            raise InvalidInputError(
                f"Values {parts} cannot be read back from their path.",
                hint="The layout supports no empty value, no '/', and no '.' in the date.",
            )
        return path.removeprefix("./")

    def values(self, path: str) -> dict[str, str]:
        """Return the dimensions of a file by name, in the form of its path.

        Raises:
            InvalidInputError: The path is outside the base, or not of the layout.
        """
        *levels, name = _below(path, self.base)
        parts = [*levels, *self._from_name(name, path)]
        if len(parts) != len(self.schema) or not all(parts):
            raise InvalidInputError(
                f"Path {path!r} holds {len(parts)} dimensions, not {len(self.schema)}.",
                hint=f"Dimensions are: {', '.join(self.schema.names)}.",
            )
        return dict(zip(self.schema.names, parts, strict=True))

    def _from_name(self, name: str, path: str) -> list[str]:
        if not self.named:
            return []
        known = _FILE_NAME.fullmatch(name)
        # A name of the layout is split from its end: only the first value may hold dots. Other
        # names are split from their beginning.
        pieces = (
            known["values"].rsplit(".", self.named - 1)
            if known
            else name.split(".", self.named)[: self.named]
        )
        if len(pieces) < self.named:
            raise InvalidInputError(
                f"The name of file {path!r} does not hold {self.named} dimensions.",
                hint="A name has the form <value>.<date>.v1.log.",
            )
        return pieces

    def select(self, paths: Iterable[str]) -> Selection:
        """Sort paths by the schema.

        Allowed values of every kind are compared in the form of paths. `OTHER` and `UNKNOWN` pass
        where any value is allowed or a list names them.
        """
        rules = [_on_disk(rule.allowed) for rule in self.schema]
        included: list[str] = []
        excluded: list[str] = []
        refused: dict[str, str] = {}
        for path in paths:
            try:
                values = self.values(path).values()
            except InvalidInputError as exc:
                refused[path] = exc.message
                continue
            passes = all(map(_passes, rules, values))
            (included if passes else excluded).append(path)
        return Selection(included=tuple(included), excluded=tuple(excluded), refused=refused)


def _below(path: str, base: str) -> list[str]:
    """Return the segments of a path below the base, comparing segment by segment."""
    segments, above = path.split("/"), posixpath.normpath(base or ".").split("/")
    if above == ["."]:
        above = []
    segments = [segment for i, segment in enumerate(segments) if segment != "." or i]
    inside = segments[: len(above)] == above and len(segments) > len(above)
    climbs = not {".", ".."}.isdisjoint(segments)
    if not inside or climbs or (not above and path.startswith("/")):
        raise InvalidInputError(
            f"Path {path!r} is outside {base or '.'!r}.", hint="Name the directory of the tree."
        )
    return segments[len(above) :]


def _on_disk(allowed: AllowedValues) -> AllowedValues:
    bound = allowed.bind(_STRING, "allowed values")
    if isinstance(bound, OneOf):
        return OneOf(tuple(safe_name(str(value)) for value in bound.values))
    if isinstance(bound, Between) and bound.read_as is None:
        return Between(min=_safe_end(bound.min), max=_safe_end(bound.max))
    return bound


def _safe_end(end: Scalar) -> Scalar:
    return None if end is None else safe_name(str(end))


def _passes(allowed: AllowedValues, value: str) -> bool:
    names_values = isinstance(allowed, AnyValue | OneOf)
    return allowed.allows(value) and (names_values or value not in _TOKENS)

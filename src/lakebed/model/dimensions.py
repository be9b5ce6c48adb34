"""Dimension schemas: the fields and values that have partitions of their own, as one document.

The document is telemetry_schema.json::

    {"version": 1, "dimensions": [{"field_name": "appName", "allowed_values": ["Firefox"]}, …]}

The order of the dimensions is the order of the directories.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lakebed.common.given import read_given
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    PartitionSpecError,
    UnsupportedVersionError,
)
from lakebed.model.allowed import AllowedValues, read_allowed
from lakebed.model.names import nearest
from lakebed.model.partition import Dimension

VERSIONS = (1, 2)  # both published documents have one form
MAX_DOCUMENT_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionRule:
    """One dimension.

    Attributes:
        field_name: The name of the field, and of the level in the path.
        allowed: The values that have a partition of their own.
        cap: Upper limit of their number where `allowed` does not list them; None for the default.
    """

    field_name: str
    allowed: AllowedValues
    cap: int | None = None


@dataclass(frozen=True, slots=True)
class DimensionSchema:
    """Dimensions in the order of the directories.

    >>> text = '''{"version": 1, "dimensions": [
    ...     {"field_name": "appName", "allowed_values": ["Firefox", "Fennec"]},
    ...     {"field_name": "appVersion", "allowed_values": "*"}]}'''
    >>> schema = DimensionSchema.from_json(text)
    >>> schema.names
    ('appName', 'appVersion')
    >>> print(*schema.partition_by(), sep="; ")
    dimension(appName, 'Firefox', 'Fennec') as appName_dimension;
    dimension(appVersion) as appVersion_dimension
    """

    dimensions: tuple[DimensionRule, ...]
    version: int = 1

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise PartitionSpecError(
                "dimensions: the schema has no dimensions.", hint="Give at least one."
            )
        for position, name in enumerate(self.names):
            if name in self.names[:position]:
                raise PartitionSpecError(
                    f"dimensions[{position}].field_name: {name!r} appears twice.",
                    hint="Name each field once.",
                )

    def __iter__(self) -> Iterator[DimensionRule]:
        return iter(self.dimensions)

    def __len__(self) -> int:
        return len(self.dimensions)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions in order."""
        return tuple(rule.field_name for rule in self.dimensions)

    def get(self, name: str) -> DimensionRule:
        """Return the dimension of this name.

        Raises:
            InvalidInputError: The dimension is unknown; the message names the nearest.
        """
        return self.dimensions[self.position(name)]

    def position(self, name: str) -> int:
        """Return the position of a dimension in the path, from 0.

        Raises:
            InvalidInputError: The dimension is unknown; the message names the nearest.
        """
        if name not in self.names:
            raise InvalidInputError(
                f"Unknown dimension {name!r}.",
                hint=nearest(name, self.names) or f"Dimensions are: {', '.join(self.names)}.",
            )
        return self.names.index(name)

    def partition_by(
        self, *, sources: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
    ) -> tuple[Dimension, ...]:
        """Return the partition functions, for `DatasetDescriptor(partition_by=…)`.

        Args:
            sources: The field of a dimension where it differs from its name, such as
                `{"appName": "application.name"}`.
            names: The partition field of a dimension; by default `<source>_dimension`.

        Raises:
            InvalidInputError: A mapping names an unknown dimension.
        """
        sources, names = sources or {}, names or {}
        for name in (*sources, *names):
            self.position(name)
        return tuple(
            Dimension.of(
                sources.get(rule.field_name, rule.field_name),
                rule.allowed,
                name=names.get(rule.field_name),
                cap=rule.cap,
            )
            for rule in self.dimensions
        )

    def to_document(self) -> dict[str, Any]:
        """Return the document, parsed."""
        return {
            "version": self.version,
            "dimensions": [
                {"field_name": rule.field_name, "allowed_values": rule.allowed.to_document()}
                | ({} if rule.cap is None else {"cap": rule.cap})
                for rule in self.dimensions
            ],
        }

    def to_json(self) -> str:
        """Return the document, which `from_json` reads."""
        return json.dumps(self.to_document(), ensure_ascii=False, indent=2)

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Self:
        """Read telemetry_schema.json.

        Args:
            source: The text of the document, which begins with `{`, or the path of a file.

        Raises:
            NotFoundError: The file does not exist.
            FormatError: The document is not JSON.
            UnsupportedVersionError: This release does not support the version of the document.
            PartitionSpecError: The document has another form; the message names the place, such
                as `dimensions[2].allowed_values`.
        """
        text, where = os.fspath(source), "the text"
        if not text.lstrip().startswith(("{", "[")):
            text, where = _read_file(Path(text)), repr(text)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise FormatError(
                f"The dimension schema in {where} is not JSON: {exc}.",
                hint="Correct the document; telemetry_schema.json shows the form.",
            ) from exc
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read telemetry_schema.json, parsed.

        Raises:
            UnsupportedVersionError: This release does not support the version of the document.
            PartitionSpecError: The document has another form; the message names the place.
        """
        if not isinstance(document, Mapping):
            raise _wrong(
                "the document", document, 'It has the form {"version": 1, "dimensions": […]}.'
            )
        _check_members(document, "", {"dimensions"}, {"version"})
        version, dimensions = document.get("version", 1), document["dimensions"]
        if not isinstance(version, int) or isinstance(version, bool):
            raise _wrong("version", version, "Write a whole number.")
        if version not in VERSIONS:
            raise UnsupportedVersionError(
                f"version: dimension schemas of version {version} are not supported.",
                hint=f"Known are: {', '.join(map(str, VERSIONS))}.",
            )
        if not isinstance(dimensions, list):
            raise _wrong("dimensions", dimensions, "Write a list.")
        rules = [
            _read_rule(dimension, f"dimensions[{i}]") for i, dimension in enumerate(dimensions)
        ]
        return cls(tuple(rules), version)


def _read_file(path: Path) -> str:
    text = read_given(path, MAX_DOCUMENT_BYTES)
    if text is None:
        raise NotFoundError(
            f"No dimension schema {str(path)[:500]!r}.",
            hint="Give JSON text or the path of a file.",
        )
    return text


def _read_rule(document: object, place: str) -> DimensionRule:
    if not isinstance(document, Mapping):
        raise _wrong(place, document, 'It has the form {"field_name": …, "allowed_values": …}.')
    _check_members(document, f"{place}.", {"field_name", "allowed_values"}, {"cap"})
    name, cap = document["field_name"], document.get("cap")
    if not isinstance(name, str) or not name:
        raise _wrong(f"{place}.field_name", name, "Write the name of a field.")
    if "cap" in document and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
        raise _wrong(f"{place}.cap", cap, "Write a whole number of at least 1.")
    allowed = read_allowed(document["allowed_values"], f"{place}.allowed_values")
    return DimensionRule(field_name=name, allowed=allowed, cap=cap)


def _check_members(
    document: Mapping[Any, Any], place: str, required: set[str], optional: set[str]
) -> None:
    for name in sorted(required):
        if name not in document:
            raise PartitionSpecError(f"{place}{name} is missing.", hint=f"Add {name!r}.")
    for name in document:
        if name not in required | optional:
            # A member that has a meaning elsewhere would be dropped silently.
            raise PartitionSpecError(
                f"{place}{name}: unknown member.",
                hint=f"Known are: {', '.join(sorted(required | optional))}.",
            )


def _wrong(place: str, value: object, hint: str) -> PartitionSpecError:
    return PartitionSpecError(f"{place}: {reprlib.repr(value)} is not valid here.", hint=hint)

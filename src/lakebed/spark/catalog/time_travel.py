"""The version or the time that a statement names: VERSION AS OF, TIMESTAMP AS OF."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakebed.errors import InvalidInputError
from lakebed.model.values import from_micros

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import CatalogDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMoment:
    """A version, a time, or neither.

    Attributes:
        version: The version; None if the statement names none.
        time: The time, aware; None if the statement names none.
    """

    version: int | None = None
    time: dt.datetime | None = None

    @classmethod
    def of(cls, parts: Iterable[Any]) -> Self:
        """Read the moment from the arguments that Spark passes beside the name of a table.

        Raises:
            InvalidInputError: The version is not a whole number.
        """
        from py4j.java_collections import JavaMap, JavaSet

        for part in parts:
            if isinstance(part, int | str):
                return cls._parse(part)
            if isinstance(part, JavaMap | JavaSet):
                continue  # options, or privileges
            travel = part.timeTravel().orElse(None)
            if travel is None:
                continue
            if travel.getClass().getSimpleName().endswith("AsOfVersion"):
                return cls._parse(str(travel.version()))
            return cls._parse(int(travel.micros()))
        return cls()

    @classmethod
    def _parse(cls, value: int | str) -> Self:
        if isinstance(value, int):
            return cls(time=from_micros(value))
        try:
            return cls(version=int(value))
        except ValueError:
            raise InvalidInputError(
                f"VERSION AS OF {value!r}: a version is a whole number.",
                hint="lake['flights'].history() lists them.",
            ) from None

    def of_dataset(self, dataset: CatalogDataset) -> CatalogDataset:
        """Return a dataset at the moment; the dataset itself if there is none."""
        if self.version is not None:
            return dataset.at(version=self.version)
        return dataset if self.time is None else dataset.at(time=self.time)


def asks_to_delete(parts: Iterable[Any]) -> bool:
    """Return whether the arguments that Spark passes beside the name of a table are of a DELETE."""
    from py4j.java_collections import JavaMap, JavaSet

    for part in parts:
        if not isinstance(part, int | str | JavaMap):
            privileges = part if isinstance(part, JavaSet) else part.writePrivileges()
            return bool(privileges.toString() == "[DELETE]")
    return False

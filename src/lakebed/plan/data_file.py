"""One file of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.values import Scalar
from lakebed.state.facts import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a plan.

    Attributes:
        key: Where it is in the store.
        label: Its name in the head.
        partition: Typed values of its directory levels.
        is_filtered: Whether some of its rows may not belong to the view.
        schema_number: Of the schema that it is of; None for a file of another tool.
        constants: Fields that its schema lacks, and what all its rows have in their place.
        row_count: Number of its entities; None where the plan did not have to know.
        recorded: What its content must be before any of it is used; None if it is read as it is.
    """

    key: str
    label: str
    partition: Mapping[str, Scalar]
    is_filtered: bool
    schema_number: int | None = 1
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_count: int | None = None
    recorded: Recorded | None = None

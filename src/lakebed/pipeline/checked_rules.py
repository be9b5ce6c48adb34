"""Checks of the rules of a pipeline against the dataset that they are for."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import LakebedError
from lakebed.model.declared import Check
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.retention import RetentionRule, in_force, misfits_of
from lakebed.pipeline.toml_lines import KeyPath
from lakebed.upkeep.rules import LayoutRule


def problems_of(
    retention: RetentionRule | None,
    layout: LayoutRule | None,
    checks: Mapping[str, Check] | None,
    descriptor: DatasetDescriptor,
) -> dict[KeyPath, LakebedError]:
    """Return the reasons why rules do not fit a dataset, by the keys that declare them."""
    found: dict[KeyPath, LakebedError] = {}
    if retention is not None:
        misfits = misfits_of(retention, descriptor)
        found.update({("retention", key): exc for key, exc in misfits.items()})
    try:
        in_force(retention, descriptor.properties)
    except LakebedError as exc:
        found["retention",] = exc
    for name in () if layout is None else layout.sort_by:
        try:
            descriptor.schema.get(name)
        except LakebedError as exc:
            found["layout", "sort_by"] = exc
    for name, check in (checks or {}).items():
        try:
            check.check_declared(descriptor.schema)
        except LakebedError as exc:
            found["checks", name] = exc
    return found

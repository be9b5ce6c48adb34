"""Checks of the rules of a pipeline against the dataset that they are for."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import LakebedError
from lakebed.model.declared import Check
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Layout
from lakebed.model.sql_predicates import parse_sql
from lakebed.pipeline.retention import find_time
from lakebed.pipeline.toml_lines import KeyPath
from lakebed.pipeline.upkeep_rules import LayoutRule, RetentionRule


def problems_of(
    retention: RetentionRule | None,
    layout: LayoutRule | None,
    checks: Mapping[str, Check] | None,
    descriptor: DatasetDescriptor,
) -> dict[KeyPath, LakebedError]:
    """Return the reasons why rules do not fit a dataset, by the keys that declare them."""
    found: dict[KeyPath, LakebedError] = {}
    if retention is not None and retention.keep is not None:
        try:
            find_time(descriptor, retention.by)
        except LakebedError as exc:
            found["retention", "keep" if retention.by is None else "by"] = exc
    if retention is not None and retention.delete_where is not None:
        try:
            types = Layout.of_ours("dataset", descriptor).predicate_types
            parse_sql(retention.delete_where, types)
        except LakebedError as exc:
            found["retention", "delete_where"] = exc
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

"""The checks that a pipeline declares for its dataset, and the properties that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakebed.errors import LakebedError
from lakebed.model.declared import Check
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.publishing import REQUIRE_CHECKS, is_on
from lakebed.pipeline.ingest import Ingest
from lakebed.pipeline.table_ingest import TableIngest

Checks = Mapping[str, Check]


def with_checks(
    descriptor: DatasetDescriptor, checks: Checks | None, *, is_required: bool | None
) -> DatasetDescriptor:
    """Return the descriptor as a pipeline declares it; the same one if nothing differs.

    Args:
        descriptor: The present descriptor.
        checks: All checks of the dataset; None to leave them as they are.
        is_required: Whether publications wait for checks; None to leave that as it is.

    Raises:
        LakebedError: A check does not fit the schema.
    """
    if checks is not None and dict(checks) != descriptor.checks:
        descriptor = replace(descriptor, checks=checks)
    if is_required not in (None, is_on(descriptor.properties, REQUIRE_CHECKS)):
        switched = {REQUIRE_CHECKS: "true" if is_required else "false"}
        descriptor = replace(descriptor, properties={**descriptor.properties, **switched})
    return descriptor


def creating_with(
    ingest: Ingest | TableIngest, checks: Checks | None, *, is_required: bool | None
) -> Ingest | TableIngest:
    """Return an ingest that creates a missing dataset with checks.

    Checks of fields that only the existing dataset has cannot be declared for a new one: the ingest
    stays as it is.
    """
    if ingest.create is None:
        return ingest
    try:
        create = with_checks(ingest.create, checks, is_required=is_required)
    except LakebedError:
        return ingest
    return ingest if create is ingest.create else replace(ingest, create=create)

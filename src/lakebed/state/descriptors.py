"""The form of a descriptor that the head and the history keep."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.lineage import Lineage


def describe(descriptor: DatasetDescriptor, lineage: Lineage) -> dict[str, Any]:
    """Return the form of a descriptor that the head and the history keep."""
    document = descriptor.to_document()
    if lineage.number > 1:
        document["lineage"] = lineage.to_document(descriptor.schema)
    return document


def descriptor_from(document: Mapping[str, Any], key: str) -> tuple[DatasetDescriptor, Lineage]:
    """Read a descriptor from the head or the history, and the lineage of its schema.

    Args:
        document: What `describe` gave.
        key: Where it was, for the error.

    Raises:
        CorruptMetadataError: It does not describe a dataset.
    """
    try:
        descriptor = DatasetDescriptor.from_document(document)
        if "lineage" not in document:
            return descriptor, Lineage()
        return descriptor, Lineage.from_document(document["lineage"], descriptor.schema)
    # Whatever can be wrong with JSON of any form: it is not taken apart by a schema before.
    except (
        LakebedError,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as exc:
        raise _unreadable(key, exc) from exc


@functools.lru_cache(maxsize=256)
def read_descriptor(text: str, key: str) -> tuple[DatasetDescriptor, Lineage]:
    """Read a descriptor from its text in a head; see `descriptor_from`."""
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _unreadable(key, exc) from exc
    return descriptor_from(document, key)


def _unreadable(key: str, cause: Exception) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"{key!r} holds a descriptor ('lakebed.descriptor') that cannot be read: {cause}.",
        hint="Restore the object from a copy, or upgrade Lakebed.",
    )

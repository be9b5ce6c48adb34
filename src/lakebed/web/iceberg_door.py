"""Options of the Iceberg catalog of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.errors import InvalidNameError
from lakebed.model.names import is_dataset_name

DEFAULT_NAMESPACE = "lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergDoor:
    """Options of the catalog.

    Attributes:
        namespace: Name of the only namespace.
        metadata: URL for the metadata of tables that is not beside their data; readers must be able
            to read it. None for virtual metadata, for clients that let the server plan.
        metadata_options: Settings of the store of `metadata`.
        root: URL of the repository for readers; None for the usual one.

    Raises:
        InvalidNameError: The namespace is not a valid name.

    Examples:
        >>> IcebergDoor(namespace="web").metadata is None
        True
    """

    namespace: str = DEFAULT_NAMESPACE
    metadata: str | None = None
    metadata_options: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None

    def __post_init__(self) -> None:
        if not is_dataset_name(self.namespace):
            raise InvalidNameError(
                f"{self.namespace!r} is not a valid namespace.",
                hint="Use letters, digits, '+', '-' and '_' only.",
            )

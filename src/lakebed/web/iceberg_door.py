"""Options of the Iceberg catalog of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakebed.archive.http.server import checked_token
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, InvalidNameError
from lakebed.model.names import is_dataset_name

DEFAULT_NAMESPACE = "lake"
WRITES = ("append", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergDoor:
    """Options of the catalog.

    Attributes:
        namespace: Name of the namespace of the datasets in the root of the lake; its namespaces keep
            their names.
        metadata: URL for the metadata of tables that is not beside their data; readers must be able
            to read it. None for virtual metadata, for clients that let the server plan.
        metadata_options: Settings of the store of `metadata`.
        root: URL of the repository for readers; None for the usual one.
        allow_writes: The writes of clients that are allowed: `append` for new rows, tables and
            namespaces only, `all` for updates, deletes and drops, too; None for none.
        write_token: Secret that requests to write must send as `Authorization: Bearer …`; it can
            read, too. It is not shown.

    Raises:
        InvalidNameError: The namespace is not a valid name.
        InvalidInputError: There is no such value of `allow_writes`, or writes are allowed without a
            token, or the reverse, or the token is not valid.

    Examples:
        >>> IcebergDoor(namespace="web").metadata is None
        True
    """

    namespace: str = DEFAULT_NAMESPACE
    metadata: str | None = None
    metadata_options: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None
    allow_writes: Literal["append", "all"] | None = None
    write_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not is_dataset_name(self.namespace):
            raise InvalidNameError(
                f"{self.namespace!r} is not a valid namespace.",
                hint="Use letters, digits, '+', '-' and '_' only.",
            )
        if self.allow_writes not in (None, *WRITES):
            raise InvalidInputError(
                f"allow_writes is {shown(self.allow_writes)}.",
                hint="Give 'append' for new rows only, 'all' for updates and deletes, too; or leave "
                "it out.",
            )
        if (self.allow_writes is None) != (self.write_token is None):
            raise InvalidInputError(
                "Writes are allowed without a token for them."
                if self.write_token is None
                else "There is a token for writes, and none are allowed.",
                hint="Give allow_writes and write_token, on the command line --allow-writes and "
                "the variable LAKEBED_WRITE_TOKEN; or neither.",
            )
        checked_token(self.write_token)

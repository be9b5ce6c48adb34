"""HDFS, over the HTTP protocol of its NameNodes and DataNodes.

`lakebed.store.numbered` implements compare-and-swap with inode numbers, here over WebHDFS.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidNameError
from lakebed.store.base import validate_key
from lakebed.store.hdfs_options import HdfsSettings
from lakebed.store.numbered import NumberedStore
from lakebed.store.webhdfs import COLON, WebHdfs


class HdfsStore(NumberedStore):
    """A directory of HDFS. The first write creates it, not the opening of the store."""

    def __init__(self, url: str, *, options: Mapping[str, str] | None = None) -> None:
        """Open the store; nothing is sent yet.

        Args:
            url: `hdfs://HOST:PORT/PATH` with the port of Hadoop's own protocol, or
                `webhdfs://HOST:PORT/PATH`, or with TLS `swebhdfs://HOST:PORT/PATH`. The path is
                taken literally, `%` included.
            options: `http_address` (HOST:PORT of the NameNode's HTTP server; several separated by
                commas), `user`, `delegation_token`, `connect_timeout_s`, `read_timeout_s`,
                `max_retries`, `retry_timeout_s`.

        Raises:
            InvalidInputError: The URL does not name a host, or an option is unknown or cannot be
                used.
            MissingDependencyError: urllib3 is not installed.
        """
        self._options = StorageOptions(options or {})
        self._settings = HdfsSettings.of(url, self._options)
        self.uri = self._settings.uri
        self.tree = WebHdfs(self._settings)

    def __reduce__(self) -> tuple[Callable[..., HdfsStore], tuple[str, StorageOptions]]:
        return _reopen, (self.uri, self._options)

    @property
    def cache_name(self) -> str:
        """The URI and a hash of the options."""
        # Two clusters may use the same name service name; secrets stay out of the cache.
        settings = sorted(self._options.items())
        return f"{self.uri}#{hashlib.blake2b(repr(settings).encode(), digest_size=16).hexdigest()}"

    def _hadoop_uri(self, key: str) -> str | None:
        # Hadoop's own clients cannot read a path with a colon.
        return None if ":" in key else f"{self._settings.hadoop_root}/{key}"

    def _begin_write(self, operation: str, key: str) -> None:
        validate_key(key)
        if COLON in key:
            raise InvalidNameError(
                f"Key {key!r} contains U+F03A, which stands for a colon on HDFS.",
                hint="Choose a name without it.",
            )
        super()._begin_write(operation, key)


def _reopen(url: str, options: StorageOptions) -> HdfsStore:
    return HdfsStore(url, options=options)

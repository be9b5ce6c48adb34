"""Open the store at a URL or a path."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakebed.common.given import check_given
from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.store.posix import PosixStore

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from lakebed.store.configured import ConfiguredOptions

ENTRY_POINT_GROUP = "lakebed.store"

# Two letters at least, since `C:/data` is a path; one slash is enough, since `s3:/bucket` is
# a typing error and must not become a directory of that name.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

Opener = Callable[[str, Mapping[str, str]], Store]


def open_store(
    url: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> Store:
    """Open the store at `url`; nothing is read or written yet.

    A package adds a scheme by an entry point in the group `lakebed.store`: its name is the scheme,
    and its object is called with the URL and the options and returns a `Store`.

    Args:
        url: A path, or a URL of the scheme file, memory, s3, s3a, gs, az, hdfs, webhdfs, swebhdfs
            or one that a package adds. Paths may begin with `~`; only file URLs are
            percent-decoded.
        storage_options: Options of the store. A directory takes `durable` and `links` (`true` or
            `false`), memory takes none; for object stores see obstore's configuration. For stores other
            than directories and memory, missing options come from the variable
            `LAKEBED_STORAGE_OPTIONS`, and then from the file `~/.config/lakebed/config.toml`.

    Raises:
        InvalidInputError: The scheme, the URL or an option cannot be used, or the URL contains
            credentials.
        MissingDependencyError: The scheme needs a package that is not installed.

    Examples:
        >>> open_store("memory://lake")
        MemoryStore('memory://lake')
    """
    check_given("The location", url, (str, os.PathLike), "Give a path or a URL.", or_none=False)
    if not isinstance(storage_options, Mapping | None):
        # Only the type: the value may contain a key.
        raise InvalidInputError(
            f"The storage options are of type {type(storage_options).__name__}, not a mapping.",
            hint='Give a mapping, such as {"region": "eu-west-1"}.',
        )
    text, options = os.fspath(url), StorageOptions(storage_options)
    refuse_credentials(text)
    match = _URL.match(text)
    if match is None:
        return _open_path(text, options)
    scheme = match[1].lower()
    opener = _OPENERS.get(scheme) or _find_added_opener(scheme)
    if opener is None:
        supported = ", ".join(sorted({*_OPENERS, *_added_schemes()}))
        msg = f"No store supports the scheme {scheme!r} of {text!r}; supported: {supported}."
        raise InvalidInputError(msg, hint=_REMEDIES.get(scheme, "Give a path or a known URL."))
    if opener in _LOCAL_OPENERS:
        return opener(text, options)
    configured = _configured(text, options)
    try:
        return opener(text, configured.options)
    except InvalidInputError as exc:
        if configured.note:
            exc.add_note(configured.note)
        raise


def effective_options(url: str, given: Mapping[str, str]) -> StorageOptions:
    """Return the options for a store at `url`, those of this machine's configuration included.

    Raises:
        InvalidInputError: As for `open_store`.
    """
    match = _URL.match(url)
    if match is None or _OPENERS.get(match[1].lower()) in _LOCAL_OPENERS:
        return StorageOptions(given)
    return _configured(url, given).options


def _configured(url: str, given: Mapping[str, str]) -> ConfiguredOptions:
    # Here, not above: users of a local directory do not need it.
    from lakebed.store.configured import configured_options

    return configured_options(url, given)


_REMEDIES = {
    "abfss": "Write az://CONTAINER/PREFIX with the storage option account_name.",
    "http": "For your own object store write s3://BUCKET with the storage option endpoint.",
    "https": "For your own object store write s3://BUCKET with the storage option endpoint.",
}


def _open_path(path: str, options: Mapping[str, str]) -> PosixStore:
    if not path:
        msg = "The path of the store is empty."
        raise InvalidInputError(msg, hint="Write '.' for the current directory.")
    try:
        root = Path(path).expanduser()
    except RuntimeError as exc:
        msg = f"The home directory of {path!r} was not found: {exc}"
        raise InvalidInputError(msg, hint="Give the path without '~'.") from exc
    _refuse_unknown(path, options, {"durable", "links"})
    return PosixStore(
        root,
        durable=_read_flag(options, "durable", default=True),
        links=allows_links(options),
    )


def allows_links(options: Mapping[str, str]) -> bool:
    """Return whether storage options allow symbolic links in a directory.

    Raises:
        InvalidInputError: The option is neither true nor false.
    """
    return _read_flag(options, "links", default=False)


def _read_flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    usual = str(default).lower()
    text = options.get(name, usual).lower()
    if text not in {"true", "false"}:
        msg = f"Storage option {name}={text!r} is neither true nor false."
        raise InvalidInputError(msg, hint=f"Leave it out for {usual}.")
    return text == "true"


def _open_file_url(url: str, options: Mapping[str, str]) -> PosixStore:
    # Lakebed escapes `?` and `#` in file URLs; in a user's URL they are a mistake.
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment:
        msg = f"{url!r} is not a URL of a local directory."
        raise InvalidInputError(msg, hint="Write file:///PATH, or the path alone.")
    return _open_path(unquote(parts.path), options)


def _open_memory(url: str, options: Mapping[str, str]) -> MemoryStore:
    _refuse_unknown(url, options, set())
    return MemoryStore(url.partition(":")[2].removeprefix("//"))


def _open_object_store(url: str, options: Mapping[str, str]) -> Store:
    # Here, not above: users of a local directory do not need it.
    from lakebed.store.object import ObjectStore

    return ObjectStore(url, options=options)


def _open_hdfs(url: str, options: Mapping[str, str]) -> Store:
    # Here, not above, for the same reason.
    from lakebed.store.hdfs import HdfsStore

    return HdfsStore(url, options=options)


_OPENERS: Mapping[str, Opener] = {
    "az": _open_object_store,
    "file": _open_file_url,
    "gs": _open_object_store,
    "hdfs": _open_hdfs,
    "memory": _open_memory,
    "s3": _open_object_store,
    "s3a": _open_object_store,
    "swebhdfs": _open_hdfs,
    "webhdfs": _open_hdfs,
}


_LOCAL_OPENERS = (_open_file_url, _open_memory)


def _added_schemes() -> set[str]:
    return _added_openers().names


def _find_added_opener(scheme: str) -> Opener | None:
    for entry_point in _added_openers().select(name=scheme):
        opener: Opener = entry_point.load()
        return opener
    return None


def _added_openers() -> EntryPoints:
    # Here, not above: it imports mail parsers, and only schemes of other packages need it.
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINT_GROUP)


def _refuse_unknown(url: str, options: Mapping[str, str], known: set[str]) -> None:
    unknown = sorted(set(options) - known)
    if unknown:
        msg = f"Unknown storage options {unknown} for {url!r}."
        raise InvalidInputError(msg, hint=f"It takes {sorted(known) or 'none'}.")

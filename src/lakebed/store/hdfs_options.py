"""Where a NameNode answers, and as whom to ask it: the URL, the options, and Hadoop's own files.

Hadoop's files are those of the directory `HADOOP_CONF_DIR`. They say what a name service is called
and where its NameNodes listen, so that on a machine of the cluster the URL is enough.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError

SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
_DEFAULT_PORTS = {"http": 9870, "https": 9871}  # dfs.namenode.http-address, …https-address
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_MAX_PORT = 65_535
_NUMBERS = {
    "connect_timeout_s": "5",
    "read_timeout_s": "60",
    "max_retries": "5",
    "retry_timeout_s": "60",
}
_OPTIONS = frozenset({"http_address", "user", "delegation_token", *_NUMBERS})
_FILES = ("core-site.xml", "hdfs-site.xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsSettings:
    """What a client of WebHDFS needs to know.

    Attributes:
        uri: The root of the store, normalised, without a final slash.
        hadoop_root: The same by Hadoop's own protocol, as far as its files say where that is
            spoken; else by the scheme of the URI, which Hadoop's clients know as well.
        directory: The same on the file system, without slashes at its ends.
        addresses: `http://HOST:PORT` of each NameNode, the likeliest first.
        user: As whom to ask; None with a token, which says it.
        token: A delegation token, or None.
        connect_timeout_s: For a connection, in seconds.
        read_timeout_s: For an answer, in seconds.
        max_retries: Of a request that was not answered.
        retry_timeout_s: For all of them, in seconds.
    """

    uri: str
    hadoop_root: str
    directory: str
    addresses: tuple[str, ...]
    user: str | None
    token: str | None
    connect_timeout_s: float
    read_timeout_s: float
    max_retries: int
    retry_timeout_s: float

    @classmethod
    def of(cls, url: str, options: StorageOptions) -> Self:
        """Read a URL and options.

        Raises:
            InvalidInputError: The URL names no NameNode, or an option is not known or cannot be
                used; the message names it.
        """
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidInputError(
                f"Storage options {unknown} mean nothing to {url!r}.",
                hint=f"It takes {sorted(_OPTIONS)}.",
            )
        scheme, separator, location = url.partition("://")
        scheme = scheme.lower()
        authority, _, path = location.partition("/")
        if not separator or scheme not in SCHEMES:
            raise InvalidInputError(
                f"{url!r} is no URL of HDFS.",
                hint="Write it as hdfs://HOST:PORT/PATH, or webhdfs://HOST:PORT/PATH.",
            )
        path = path.strip("/")
        if path and not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise InvalidInputError(
                f"{url!r} has an empty component, '.' or '..' in its path.",
                hint="Write the path without them.",
            )
        hadoop = _Hadoop.read()
        authority = authority or hadoop.default_authority(url)
        protocol = "https" if scheme == "swebhdfs" else "http"
        numbers = {name: _number(name, options) for name in _NUMBERS}
        token = options.get("delegation_token") or None
        addresses = _addresses(scheme, protocol, authority, options, hadoop)
        root = hadoop_root = f"{scheme}://{authority}"
        if scheme != "hdfs":
            hadoop_root = hadoop.root_at(addresses[0]) or root
        return cls(
            uri=f"{root}/{path}".rstrip("/"),
            hadoop_root=f"{hadoop_root}/{path}".rstrip("/"),
            directory=path,
            addresses=addresses,
            user=None if token else options.get("user") or _user(),
            token=token,
            connect_timeout_s=numbers["connect_timeout_s"],
            read_timeout_s=numbers["read_timeout_s"],
            max_retries=int(numbers["max_retries"]),
            retry_timeout_s=numbers["retry_timeout_s"],
        )


def _addresses(
    scheme: str,
    protocol: str,
    authority: str,
    options: Mapping[str, str],
    hadoop: _Hadoop,
) -> tuple[str, ...]:
    host, port = _checked("The URL", authority)
    default = _DEFAULT_PORTS[protocol]
    if given := options.get("http_address"):
        pairs = [_checked("Option http_address", one.strip()) for one in given.split(",")]
    elif scheme != "hdfs":
        pairs = [(host, port)]
    else:
        # The port of an hdfs:// URL is that of Hadoop's own protocol.
        told = hadoop.http_addresses(host) if port is None else ()
        pairs = [_checked("dfs.namenode.http-address", one) for one in told] or [(host, None)]
    return tuple(f"{protocol}://{host}:{port or default}" for host, port in pairs)


def _checked(where: str, address: str) -> tuple[str, int | None]:
    match = _ADDRESS.fullmatch(address)
    port = None if match is None or match["port"] is None else int(match["port"])
    if match is None or (port is not None and not 0 < port <= _MAX_PORT):
        shown = "the address" if "@" in address else repr(address)
        raise InvalidInputError(
            f"{where} names no host of HDFS: {shown}.",
            hint="Write HOST or HOST:PORT, and the user as the storage option user.",
        )
    return match["host"], port


def _number(name: str, options: Mapping[str, str]) -> float:
    text = options.get(name, _NUMBERS[name])
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6 or (name == "max_retries" and number != int(number)):
        raise InvalidInputError(
            f"Option {name} {text!r} is no number that can be used.",
            hint=f"Write it as {_NUMBERS[name]!r}.",
        )
    return number


def _user() -> str:
    name = os.environ.get("HADOOP_USER_NAME")
    if name:
        return name
    try:
        return getpass.getuser()
    except (KeyError, OSError) as exc:
        raise InvalidInputError(
            "This process has no user name to ask HDFS with.",
            hint="Give the storage option user, or set HADOOP_USER_NAME.",
        ) from exc


@dataclass(frozen=True, slots=True)
class _Hadoop:
    """What the files of Hadoop say."""

    said: Mapping[str, str]

    @classmethod
    def read(cls) -> Self:
        directory = os.environ.get("HADOOP_CONF_DIR")
        said: dict[str, str] = {}
        for path in (Path(directory, name) for name in _FILES) if directory else ():
            try:
                if not path.is_file():
                    continue
                root = ElementTree.parse(path).getroot()
            except (ElementTree.ParseError, OSError) as exc:
                raise InvalidInputError(
                    f"{path}, which HADOOP_CONF_DIR leads to, cannot be read: {exc}.",
                    hint="Mend it, or unset HADOOP_CONF_DIR and give the option http_address.",
                ) from exc
            for entry in root.iter("property"):
                said[(entry.findtext("name") or "").strip()] = (
                    entry.findtext("value") or ""
                ).strip()
        return cls(said)

    def default_authority(self, url: str) -> str:
        authority = self._authority()
        if not authority:
            raise InvalidInputError(
                f"{url!r} names no NameNode, and no core-site.xml says which one is meant.",
                hint="Write it as hdfs://HOST/PATH, or set HADOOP_CONF_DIR.",
            )
        return authority

    def root_at(self, address: str) -> str | None:
        """Return the default file system, if an HTTP address is of one of its NameNodes."""
        authority, (protocol, _, at) = self._authority(), address.partition("://")
        host, _, _ = authority.partition(":")
        if not host:
            return None
        told = self.http_addresses(host, protocol) or (host,)
        port = _DEFAULT_PORTS[protocol]
        is_there = at in {one if ":" in one else f"{one}:{port}" for one in told}
        return f"hdfs://{authority}" if is_there else None

    def _authority(self) -> str:
        """Return that of the default file system; nothing where that is not HDFS."""
        scheme, _, location = self.said.get("fs.defaultFS", "").partition("://")
        return location.partition("/")[0] if scheme == "hdfs" else ""

    def http_addresses(self, host: str, protocol: str = "http") -> tuple[str, ...]:
        key = f"dfs.namenode.{protocol}-address"
        services = [one.strip() for one in self.said.get("dfs.nameservices", "").split(",")]
        if host in services:
            nodes = self.said.get(f"dfs.ha.namenodes.{host}", "")
            keys = [f"{key}.{host}.{node.strip()}" for node in nodes.split(",") if node.strip()]
            told = [self.said.get(one, "") for one in keys or [f"{key}.{host}"]]
        else:
            own = self.said.get(key, "")
            told = [own] if own.partition(":")[0] == host else []
        return tuple(address for address in told if address)

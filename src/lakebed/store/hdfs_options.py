"""Addresses and user for a NameNode, from the URL, the options and Hadoop's configuration files.

Hadoop's files are in the directory `HADOOP_CONF_DIR`. They contain the name services and the
addresses of their NameNodes, so that on a machine of the cluster the URL is enough.
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
    """Settings of a WebHDFS client.

    Attributes:
        uri: The root of the store, normalised, without a final slash.
        hadoop_root: URI of the same directory for Hadoop's own protocol if Hadoop's files give its
            address; else with the scheme of `uri`, which Hadoop's clients know as well.
        directory: Path of the directory on the file system, without slashes at its ends.
        addresses: `http://HOST:PORT` of each NameNode, the likeliest first.
        user: Name of the user; None with a token, which names the user.
        token: A delegation token, or None.
        connect_timeout_s: Time limit for a connection, in seconds.
        read_timeout_s: Time limit for an answer, in seconds.
        max_retries: Maximum number of retries of a request without an answer.
        retry_timeout_s: Time limit for a request with its retries, in seconds.
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
            InvalidInputError: The URL does not name a NameNode, or an option is unknown or cannot
                be used; the message names it.
        """
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidInputError(
                f"Unknown storage options {unknown} for {url!r}.",
                hint=f"It takes {sorted(_OPTIONS)}.",
            )
        scheme, separator, location = url.partition("://")
        scheme = scheme.lower()
        authority, _, path = location.partition("/")
        if not separator or scheme not in SCHEMES:
            raise InvalidInputError(
                f"{url!r} is not a URL of HDFS.",
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
        pairs = [_checked("Option http_address", address.strip()) for address in given.split(",")]
    elif scheme != "hdfs":
        pairs = [(host, port)]
    else:
        # The port of an hdfs:// URL is that of Hadoop's own protocol.
        found = hadoop.http_addresses(host) if port is None else ()
        pairs = [_checked("dfs.namenode.http-address", address) for address in found]
        pairs = pairs or [(host, None)]
    return tuple(f"{protocol}://{host}:{port or default}" for host, port in pairs)


def _checked(where: str, address: str) -> tuple[str, int | None]:
    match = _ADDRESS.fullmatch(address)
    port = None if match is None or match["port"] is None else int(match["port"])
    if match is None or (port is not None and not 0 < port <= _MAX_PORT):
        shown = "the address" if "@" in address else repr(address)
        raise InvalidInputError(
            f"{where} is not a valid HDFS address: {shown}.",
            hint="Write HOST or HOST:PORT, and give the user as the storage option user.",
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
            f"Option {name} {text!r} is not a valid number.",
            hint=f"Write a number such as {_NUMBERS[name]!r}.",
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
            "This process has no user name for requests to HDFS.",
            hint="Give the storage option user, or set HADOOP_USER_NAME.",
        ) from exc


@dataclass(frozen=True, slots=True)
class _Hadoop:
    """Properties from Hadoop's configuration files."""

    properties: Mapping[str, str]

    @classmethod
    def read(cls) -> Self:
        directory = os.environ.get("HADOOP_CONF_DIR")
        properties: dict[str, str] = {}
        for path in (Path(directory, name) for name in _FILES) if directory else ():
            try:
                if not path.is_file():
                    continue
                root = ElementTree.parse(path).getroot()
            except (ElementTree.ParseError, OSError) as exc:
                raise InvalidInputError(
                    f"{path}, in the directory HADOOP_CONF_DIR, cannot be read: {exc}.",
                    hint="Correct it, or unset HADOOP_CONF_DIR and give the option http_address.",
                ) from exc
            for entry in root.iter("property"):
                name = (entry.findtext("name") or "").strip()
                properties[name] = (entry.findtext("value") or "").strip()
        return cls(properties)

    def default_authority(self, url: str) -> str:
        authority = self._authority()
        if not authority:
            raise InvalidInputError(
                f"{url!r} does not name a NameNode, and no core-site.xml has a default.",
                hint="Write it as hdfs://HOST/PATH, or set HADOOP_CONF_DIR.",
            )
        return authority

    def root_at(self, address: str) -> str | None:
        """Return the default file system if one of its NameNodes has this HTTP address."""
        authority, (protocol, _, at) = self._authority(), address.partition("://")
        host, _, _ = authority.partition(":")
        if not host:
            return None
        found = self.http_addresses(host, protocol) or (host,)
        port = _DEFAULT_PORTS[protocol]
        is_same = at in {other if ":" in other else f"{other}:{port}" for other in found}
        return f"hdfs://{authority}" if is_same else None

    def _authority(self) -> str:
        """Return the authority of the default file system; empty if it is not HDFS."""
        scheme, _, location = self.properties.get("fs.defaultFS", "").partition("://")
        return location.partition("/")[0] if scheme == "hdfs" else ""

    def http_addresses(self, host: str, protocol: str = "http") -> tuple[str, ...]:
        key = f"dfs.namenode.{protocol}-address"
        services = self.properties.get("dfs.nameservices", "").split(",")
        if host in map(str.strip, services):
            nodes = self.properties.get(f"dfs.ha.namenodes.{host}", "")
            keys = [f"{key}.{host}.{node.strip()}" for node in nodes.split(",") if node.strip()]
            found = [self.properties.get(name, "") for name in keys or [f"{key}.{host}"]]
        else:
            own = self.properties.get(key, "")
            found = [own] if own.partition(":")[0] == host else []
        return tuple(address for address in found if address)

"""URLs of locations: checks for credentials, and quoting for shells."""

from __future__ import annotations

import ipaddress
import re
import shlex
import urllib.parse

from lakebed.errors import InvalidInputError

# The authority of such a URL is only the name of the bucket. A secret key may hold slashes, so the
# `@` may come after one; the colon before the key suffices.
_BUCKET_WITH_MORE = re.compile(r"(?:s3a?|gs|az|dynamodb)://[^/?]*[@:]", re.IGNORECASE)
_PASSWORD = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*:[^/]*@|https?://[^/@\[]*:(?!\d{0,5}(?:[/?#]|$))",
    re.IGNORECASE,
)


def refuse_credentials(url: str) -> str:
    """Return `url` unchanged if it holds no key and no password.

    A URL is shown in errors, logs and displays, stored with the data read from it, and sent to
    workers. So it is refused first, with a message that does not show it.

    Raises:
        InvalidInputError: There is text before an `@`, or a colon next to the bucket.
    """
    if _BUCKET_WITH_MORE.match(url) or _PASSWORD.match(url):
        scheme = url.partition("://")[0]
        raise InvalidInputError(
            f"A URL that begins with {scheme}:// has credentials or a port next to the name.",
            hint=f"Write {scheme}://NAME, and give keys by environment, profile or storage "
            "options, and an address of the service as the storage option endpoint.",
        )
    return url


def location_and_name(address: str) -> tuple[str, str]:
    """Split LOCATION/NAME of a dataset into the location of the repository and the name.

    Raises:
        InvalidInputError: There is no location.

    >>> location_and_name("s3://bucket/lake/flights")
    ('s3://bucket/lake', 'flights')
    """
    location, _, name = address.rstrip("/").rpartition("/")
    if not location:
        raise InvalidInputError(
            f"Dataset {address!r} names no repository.",
            hint="Write LOCATION/NAME, such as ./lake/flights or s3://bucket/lake/flights.",
        )
    return location, name


def shell_address(uri: str) -> str:
    """Return a location as a word of a command line; a directory is written as its path.

    >>> shell_address("file:///tmp/lake/flights"), shell_address("s3://bucket/lake")
    ('/tmp/lake/flights', 's3://bucket/lake')
    >>> shell_address("file:///tmp/my%20lake/flights")
    "'/tmp/my lake/flights'"
    """
    scheme, mark, path = uri.partition("file://")
    return shlex.quote(urllib.parse.unquote(path) if mark and not scheme else uri)


_MEANT_BY_SHELLS = re.compile(r'["$`\\!\n]')  # also within double quotes


def shell_text(text: str) -> str:
    """Return a text as a word of a command line, in double quotes where these suffice.

    >>> print(shell_text("run = 'daily'"))
    "run = 'daily'"
    >>> print(shell_text('run = "$x"'))
    'run = "$x"'
    """
    return shlex.quote(text) if _MEANT_BY_SHELLS.search(text) else f'"{text}"'


_ENDPOINT = re.compile(
    r"(?i:https?)://(?P<host>[A-Za-z0-9._-]+|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
)
_MAX_PORT = 65_535


def check_endpoint(name: str, url: str) -> None:
    """Check the address of a service.

    With anything else, clients fail at the first request, each with another error.

    Args:
        name: The name of the setting, for the error.
        url: The value of the setting.

    Raises:
        InvalidInputError: The value is not an http or https URL of a host, or holds a password.
    """
    if "@" in url:
        raise InvalidInputError(
            f"{name} holds a user or a password, which cannot be used there.",
            hint="Write it as http://HOST:PORT, and give keys by environment, profile or "
            "storage options.",
        )
    match = _ENDPOINT.fullmatch(url)
    if match is None or not _is_host(match) or int(match["port"] or 0) > _MAX_PORT:
        raise InvalidInputError(
            f"{name} {url!r} is not the URL of a service.",
            hint="Write it as https://HOST or http://HOST:PORT.",
        )


def _is_host(match: re.Match[str]) -> bool:
    last = match["host"].rstrip(".").rpartition(".")[2]
    try:
        if match["ipv6"] is not None:
            ipaddress.IPv6Address(match["ipv6"])
        elif last.isdigit():
            ipaddress.IPv4Address(match["host"].rstrip("."))
    except ValueError:
        return False
    return bool(last)

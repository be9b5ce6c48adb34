"""What may be shown of the settings of a store: nothing that opens it to whoever reads it.

What holds storage options holds them as `StorageOptions`, whose display leaves out values; and
every message of an error goes through `lakebed.errors.redacted`. So no other place needs to think
of it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping

from lakebed.errors import HIDDEN, InvalidInputError, redacted

# A shorter text is in many a word; to hide it would say what it is.
_MIN_SECRET_LENGTH = 6

# Settings of stores that say nothing about who may open them. What is not here is not shown.
_SHOWN = frozenset(
    {
        "account_name",
        "allow_http",
        "allow_invalid_certificates",
        "bucket",
        "conditional_put",
        "connect_timeout",
        "default_region",
        "durable",
        "endpoint",
        "endpoint_url",
        "max_retries",
        "profile",
        "read_timeout",
        "region",
        "retry_timeout_s",
        "skip_signature",
        "timeout",
        "virtual_hosted_style_request",
    }
)
# As long as the settings of Hadoop are, which name a bucket or an account, too.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,199}")
_PREFIX = re.compile(r"^(aws|azure|google)_(storage_)?")
_SECRET_NAME = re.compile(r"key|secret|token|password|signature|\bsas\b|_sas\b|credential")
_NO_SECRET_NAME = re.compile(r"(_id|_file|_path|_uri|_enabled)$")


class StorageOptions(dict[str, str]):
    """What a store needs to know, some of it secret: only its display differs from a dict's.

    >>> StorageOptions({"region": "eu-west-1", "secret_access_key": "wJalrXUtnFEMI"})
    {'region': 'eu-west-1', 'secret_access_key': '***'}
    """

    def __init__(self, options: Mapping[str, object] | None = None, /) -> None:
        """Take options, each a text, a number, a truth value or a duration, which are texts from now on.

        Raises:
            InvalidInputError: One is something else; the message names it, and not its value.
        """
        super().__init__({_name(name): _text(name, it) for name, it in (options or {}).items()})

    def __repr__(self) -> str:
        return repr({name: _shown(name, value) for name, value in self.items()})

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[StorageOptions], tuple[dict[str, str]]]:
        return StorageOptions, (dict(self),)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown anywhere, the longest first."""
        found = {
            secret
            for name, value in self.items()
            if _is_secret(name) and not _is_path(name, value)
            for secret in (value, value.strip(), *_inner_secrets(value))
        }
        return tuple(
            sorted((one for one in found if len(one) >= _MIN_SECRET_LENGTH), key=len, reverse=True)
        )


def is_option_name(name: str) -> bool:
    """Whether a text can name a storage option; else it may be a key that was put there."""
    return _NAME.fullmatch(name) is not None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(
            f"A storage option is named by {name!r}.", hint='Name it by a text, such as "region".'
        )
    if not is_option_name(name):
        # Not shown: `account_key:c2VjcmV0==` is a slip of the pen, and ends as a name does.
        raise InvalidInputError(
            "A storage option has a name that none can have, of other characters than letters, "
            "digits, '_', '-' and '.', or too long.",
            hint="Write options as KEY=VALUE, such as region=eu-west-1.",
        )
    return name


def _text(name: str, value: object) -> str:
    """Return a value as it would stand in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dt.timedelta):
        return f"{value // dt.timedelta(milliseconds=1)}ms"
    if isinstance(value, str):
        return value
    raise InvalidInputError(
        f"Storage option {name!r} is of type {type(value).__name__}.",
        hint="Give a text; leave the option out to say nothing.",
    )


def _shown(name: str, value: str) -> str:
    is_shown = _PREFIX.sub("", name.lower()) in _SHOWN
    return redacted(value) if is_shown else HIDDEN


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return bool(_SECRET_NAME.search(lowered)) and not _NO_SECRET_NAME.search(lowered)


def _is_path(name: str, value: str) -> bool:
    """Whether a value says where credentials are; some put the document itself there."""
    return name.lower().endswith("application_credentials") and not value.lstrip().startswith("{")


def _inner_secrets(value: str) -> list[str]:
    """Return the secrets of a key that is a JSON document, as Google's are."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, Mapping):
        return [document] if isinstance(document, str) else []
    return [one for name, one in document.items() if _is_secret(name) and isinstance(one, str)]

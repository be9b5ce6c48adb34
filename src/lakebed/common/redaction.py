"""Redaction of storage options, so that no secret is ever shown.

Storage options are always held as `StorageOptions`, whose display hides values, and every error
message goes through `lakebed.errors.redacted`. So no other code needs to take care of secrets.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping

from lakebed.errors import HIDDEN, InvalidInputError, redacted

STORAGE_PREFIX = "storage."
"""Prefix of the names of storage options among options of Spark, such as `storage.region`."""

# Shorter texts occur within many words; hiding them there would reveal them.
_MIN_SECRET_LENGTH = 6

# Settings of stores that give no access. All other settings are hidden.
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
# Long enough for settings of Hadoop, whose names contain a bucket or an account.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,199}")
_PREFIX = re.compile(r"^(aws|azure|google)_(storage_)?")
_SECRET_NAME = re.compile(r"key|secret|token|password|signature|\bsas\b|_sas\b|credential")
_NO_SECRET_NAME = re.compile(r"(_id|_file|_path|_uri|_enabled)$")


class StorageOptions(dict[str, str]):
    """Options of a store: a dict whose display hides secrets.

    >>> StorageOptions({"region": "eu-west-1", "secret_access_key": "wJalrXUtnFEMI"})
    {'region': 'eu-west-1', 'secret_access_key': '***'}
    """

    def __init__(self, options: Mapping[str, object] | None = None, /) -> None:
        """Convert options to texts; values are texts, numbers, truth values or durations.

        Raises:
            InvalidInputError: A value has another type; the message names the option without its
                value.
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
            sorted(
                (secret for secret in found if len(secret) >= _MIN_SECRET_LENGTH),
                key=len,
                reverse=True,
            )
        )


def is_option_name(name: str) -> bool:
    """Return whether a text can be the name of a storage option, and not a misplaced secret."""
    return _NAME.fullmatch(name) is not None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(
            f"{name!r} is not the name of a storage option.",
            hint='Give a text, such as "region".',
        )
    if not is_option_name(name):
        # The name is not shown: with a typing error such as `account_key:c2VjcmV0==` it is a secret.
        raise InvalidInputError(
            "A storage option has an invalid name: it is too long, or has characters other than "
            "letters, digits, '_', '-' and '.'.",
            hint="Write options as KEY=VALUE, such as region=eu-west-1.",
        )
    return name


def _text(name: str, value: object) -> str:
    """Return a value as text, as in a configuration file."""
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
        hint="Give a text, or leave the option out.",
    )


def _shown(name: str, value: str) -> str:
    is_shown = _PREFIX.sub("", name.lower()) in _SHOWN
    return redacted(value) if is_shown else HIDDEN


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return bool(_SECRET_NAME.search(lowered)) and not _NO_SECRET_NAME.search(lowered)


def _is_path(name: str, value: str) -> bool:
    """Return whether a value is the path of a credentials file, and not the document itself."""
    return name.lower().endswith("application_credentials") and not value.lstrip().startswith("{")


def _inner_secrets(value: str) -> list[str]:
    """Return the secrets of a key that is a JSON document, as Google's are."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, Mapping):
        return [document] if isinstance(document, str) else []
    return [
        value for name, value in document.items() if _is_secret(name) and isinstance(value, str)
    ]

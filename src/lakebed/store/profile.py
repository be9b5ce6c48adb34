"""Profiles of AWS from `~/.aws`, which obstore does not read.

botocore reads them: keys, single sign-on, roles to assume, a `credential_process`. It is used if
neither the options nor the environment hold credentials, and the user has profiles; otherwise
obstore uses the role of the machine, the container or the pod.

The base class of providers that obstore calls is here, too, since all of them look at such files.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakebed.errors import InvalidInputError, MissingDependencyError
from lakebed.store.object_options import Settings

_log = logging.getLogger(__name__)

Provider = Callable[[], Mapping[str, Any]]
# botocore returns credentials that are valid for at least ten minutes; obstore asks again after
# half of that time.
_TTL = timedelta(minutes=10)
_PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_FILES = {
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_CONFIG_FILE": "~/.aws/config",
}
_KEYS = ("access_key_id", "secret_access_key", "skip_signature")
# As options they take precedence over a profile; in the environment a profile takes precedence
# over them, as in the tools of AWS.
_ROLES = (
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
)


def find_user_file(path: str) -> Path | None:
    """Return the path of an optional file, with `~` expanded; None if there is none.

    It is also None if the user has no home directory, or if the process may not read the home of
    the user who started it.
    """
    try:
        expanded = Path(path).expanduser()
        return expanded if expanded.is_file() else None
    except (OSError, RuntimeError):
        return None


class LateProvider(ABC):
    """Credentials that are looked up at the first request. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: Provider | None = None

    def __call__(self) -> Mapping[str, Any]:
        """Return the credentials for a request in the form that obstore takes."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
        return self._opened()

    @abstractmethod
    def _open(self) -> Provider: ...


class ProfileCredentials(LateProvider):
    """Credentials of a profile.

    Attributes:
        config: Further settings for obstore: the region, if nothing else gives it.
    """

    def __init__(self, session: Any, name: str, region: str | None) -> None:
        super().__init__()
        self.config = {"region": region} if region else {}
        self._session = session
        self._name = name

    def _open(self) -> Provider:
        from obstore.auth.boto3 import Boto3CredentialProvider

        if self._session.get_credentials() is None:
            raise LookupError(f"{self._name} has no credentials")
        provider: Provider = Boto3CredentialProvider(self._session, ttl=_TTL)
        return provider


def find_profile(settings: Settings, uri: str) -> ProfileCredentials | None:
    """Return the credentials of a profile; None if the store must not use one.

    Args:
        settings: Settings of the store; they take precedence over the environment.
        uri: URI of the store, for log messages.

    Raises:
        InvalidInputError: There is no such profile, or its file cannot be read.
        MissingDependencyError: A profile was named, and boto3 is not installed.

    Cost:
        Checks for two files; with a profile, the import of boto3. No request.
    """
    named = settings.profile or next(filter(None, map(os.environ.get, _PROFILE_VARIABLES)), None)
    if not _uses_profile(settings, named):
        return None
    try:
        importlib.import_module("boto3")
    except ImportError as exc:
        if named:
            raise MissingDependencyError.for_extra("boto3", "s3", f"Profile {named!r}") from exc
        _log.info("AWS profiles are not read, boto3 is not installed store=%s", uri)
        return None
    return _open_profile(settings, named)


def _uses_profile(settings: Settings, named: str | None) -> bool:
    if settings.profile:
        return True
    if any(settings.of_s3(name) for name in _KEYS) or any(map(settings.given_for_s3, _ROLES)):
        return False
    return bool(named) or any(
        find_user_file(os.environ.get(variable) or default) for variable, default in _FILES.items()
    )


def _open_profile(settings: Settings, named: str | None) -> ProfileCredentials:
    import botocore.exceptions
    import botocore.session

    name = f"Profile {named!r}" if named else "The default profile"
    has_region = settings.of_s3("region") or settings.of_s3("default_region")
    try:
        session = botocore.session.Session(profile=settings.profile)
        session.get_scoped_config()
        region = None if has_region else session.get_config_variable("region")
    except botocore.exceptions.BotoCoreError as exc:
        msg = f"{name} of AWS cannot be used: {exc}"
        raise InvalidInputError(
            msg, hint="See `aws configure list-profiles`, and the files in ~/.aws."
        ) from exc
    return ProfileCredentials(session, name, region)

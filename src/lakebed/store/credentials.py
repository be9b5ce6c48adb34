"""Who asks a service, where obstore by itself would find nobody, or the wrong one.

obstore knows keys, tokens and the roles of machines, containers and pods. What the tools of the
clouds know besides is asked of the clouds' own packages: profiles and single sign-on of AWS
(`lakebed.store.profile`), every kind of application default credentials of Google, and what
`DefaultAzureCredential` tries. They are imported only where they are needed, and asked by the
first request.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from lakebed.errors import MissingDependencyError
from lakebed.store.object_options import Settings
from lakebed.store.profile import find_profile
from lakebed.store.provider import LateProvider, Provider
from lakebed.store.user_files import find_user_file

_log = logging.getLogger(__name__)


def find_credentials(scheme: str, settings: Settings, uri: str) -> Provider | None:
    """Return who asks; None where obstore knows.

    Args:
        scheme: Of the store.
        settings: Same; what they hold goes first, then the environment.
        uri: Same, for errors.

    Raises:
        InvalidInputError: Settings name a profile that cannot be used.
        MissingDependencyError: What settings or environment name can be read by a package only that
            is not installed.

    Cost:
        A look for some files; the import of a package of the cloud where one is needed. No request.
    """
    if scheme == "s3":
        return find_profile(settings, uri) or _find_given_keys(settings)
    if scheme == "gs":
        return _find_google(settings)
    return _find_azure(settings, uri)


def _find_given_keys(settings: Settings) -> Provider | None:
    """Return given keys where obstore would sign with them and with a token of other keys."""
    key_id = settings.given_for_s3("access_key_id")
    secret = settings.given_for_s3("secret_access_key")
    own_token = settings.given_for_s3("session_token") or settings.given_for_s3("token")
    if not key_id or not secret or own_token or not os.environ.get("AWS_SESSION_TOKEN"):
        return None
    if (settings.of_s3("skip_signature") or "").lower() == "true":
        return None
    keys = {"access_key_id": key_id, "secret_access_key": secret, "expires_at": None}
    return lambda: keys


_OF_OBSTORE = frozenset({"authorized_user", "service_account"})
_GOOGLE_FILE = "application_credentials"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class _GoogleCredentials(LateProvider):
    """Application default credentials that only Google's package reads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _open(self) -> Provider:
        import google.auth
        from obstore.auth.google import GoogleCredentialProvider

        with warnings.catch_warnings():
            # It warns of files that others have put there; this one the user has named.
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, _ = google.auth.load_credentials_from_file(
                str(self._path), scopes=[_GOOGLE_SCOPE]
            )
        provider: Provider = GoogleCredentialProvider(credentials)
        return provider


def _find_google(settings: Settings) -> Provider | None:
    """Return what the file of application default credentials says, where obstore cannot read it."""
    if (settings.given_credentials or settings.found_credentials) - {_GOOGLE_FILE}:
        return None
    path = _google_file(settings)
    kind = None if path is None else _kind_of(path)
    if path is None or kind is None or kind in _OF_OBSTORE:
        return None
    if not _is_installed("google.auth"):
        what = f"The file of credentials {path}, of the type {kind!r},"
        raise MissingDependencyError.for_extra("google-auth", "gcs", what)
    return _GoogleCredentials(path)


def _google_file(settings: Settings) -> Path | None:
    names = (_GOOGLE_FILE, f"google_{_GOOGLE_FILE}")
    named = next((settings.service[name] for name in names if name in settings.service), None)
    named = named or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named:
        return Path(named)
    folder = os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    return find_user_file(f"{folder}/application_default_credentials.json")


def _kind_of(path: Path) -> str | None:
    """Return the type of a file of credentials; None if it is none, which obstore says."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kind = document.get("type") if isinstance(document, Mapping) else None
    return kind if isinstance(kind, str) else None


# Who is meant, without a proof: the environment may say so of several ways to ask.
_AZURE_NAMES = frozenset({"authority_id", "client_id", "tenant_id"})


class _AzureCredentials(LateProvider):
    """What `DefaultAzureCredential` finds: a workload, a managed identity, who is logged in."""

    def _open(self) -> Provider:
        from obstore.auth.azure import AzureCredentialProvider

        provider: Provider = AzureCredentialProvider()
        return provider


def _find_azure(settings: Settings, uri: str) -> Provider | None:
    """Return the default chain of Azure where neither options nor environment say who asks."""
    if settings.given_credentials or settings.found_credentials - _AZURE_NAMES:
        return None
    if not _is_installed("azure.identity"):
        _log.info("azure-identity is not installed, only the machine is asked store=%s", uri)
        return None
    return _AzureCredentials()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False

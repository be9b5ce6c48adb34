"""Look up credentials from sources that obstore does not support, or would confuse.

obstore supports keys, tokens and the roles of machines, containers and pods. Other credentials
come from the clouds' own packages: profiles and single sign-on of AWS (`lakebed.store.profile`),
all types of application default credentials of Google, and the chain of `DefaultAzureCredential`.
The packages are imported only if needed, and called at the first request.
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
from lakebed.store.profile import LateProvider, Provider, find_profile, find_user_file

_log = logging.getLogger(__name__)


def find_credentials(scheme: str, settings: Settings, uri: str) -> Provider | None:
    """Return a credential provider; None if obstore finds the credentials by itself.

    Args:
        scheme: Scheme of the store.
        settings: Settings of the store; they take precedence over the environment.
        uri: URI of the store, for errors.

    Raises:
        InvalidInputError: The settings name a profile that cannot be used.
        MissingDependencyError: The settings or the environment name credentials that only a
            package that is not installed can read.

    Cost:
        Checks for a few files; the import of a package of the cloud if it is needed. No request.
    """
    if scheme == "s3":
        return find_profile(settings, uri) or _find_given_keys(settings)
    if scheme == "gs":
        return _find_google(settings)
    return _find_azure(settings, uri)


def _find_given_keys(settings: Settings) -> Provider | None:
    """Return given keys if obstore would combine them with the session token of other keys."""
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
            # The package warns about files from others; the user has named this one.
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, _ = google.auth.load_credentials_from_file(
                str(self._path), scopes=[_GOOGLE_SCOPE]
            )
        provider: Provider = GoogleCredentialProvider(credentials)
        return provider


def _find_google(settings: Settings) -> Provider | None:
    """Return application default credentials from a file of a type that obstore cannot read."""
    if (settings.given_credentials or settings.found_credentials) - {_GOOGLE_FILE}:
        return None
    path = _google_file(settings)
    kind = None if path is None else _kind_of(path)
    if path is None or kind is None or kind in _OF_OBSTORE:
        return None
    if not _is_installed("google.auth"):
        what = f"The credentials file {path}, of type {kind!r},"
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
    """Return the type of a credentials file; None for another file, which obstore reports."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kind = document.get("type") if isinstance(document, Mapping) else None
    return kind if isinstance(kind, str) else None


# They identify a principal without a secret; several kinds of credentials use these variables.
_AZURE_NAMES = frozenset({"authority_id", "client_id", "tenant_id"})


class _AzureCredentials(LateProvider):
    """Credentials of `DefaultAzureCredential`: workload, managed identity or logged-in user."""

    def _open(self) -> Provider:
        from obstore.auth.azure import AzureCredentialProvider

        provider: Provider = AzureCredentialProvider()
        return provider


def _find_azure(settings: Settings, uri: str) -> Provider | None:
    """Return the default chain of Azure if neither options nor environment hold credentials."""
    if settings.given_credentials or settings.found_credentials - _AZURE_NAMES:
        return None
    if not _is_installed("azure.identity"):
        _log.info(
            "azure-identity is not installed, using only the machine's identity store=%s", uri
        )
        return None
    return _AzureCredentials()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # raised for its parent package
        return False

"""URIs and settings of buckets and containers for the file systems of Hadoop."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakebed.common.redaction import StorageOptions
from lakebed.store.object_options import Service, environment_of

_ENDPOINT = re.compile(r"https://(?P<account>[a-z0-9]+)\.(blob|dfs)\.(?P<domain>[a-z0-9.-]+)/?")
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})
_S3A = "org.apache.hadoop.fs.s3a"


class HadoopNames:
    """The URI and the settings of a bucket or container for a connector of Hadoop.

    Attributes:
        root: URI without a final slash; None if Hadoop has none for it.
    """

    root: str | None

    def __init__(
        self, scheme: str, bucket: str, service: Service, options: Mapping[str, str]
    ) -> None:
        """Derive the names.

        Args:
            scheme: Scheme of Lakebed's own URI: `s3`, `gs` or `az`.
            bucket: Name of the bucket or container.
            service: The service that has the bucket.
            options: The given options for the client of the service.
        """
        self._scheme, self._bucket = scheme, bucket
        self._given = _bare(service, options)
        self._known = {**_bare(service, environment_of(service)), **self._given}
        self._host = _azure_host(self._known) if scheme == "az" else None
        if scheme == "az":
            self.root = None if self._host is None else f"abfss://{bucket}@{self._host}"
        else:
            self.root = f"{'s3a' if scheme == 's3' else scheme}://{bucket}"

    def settings(self) -> StorageOptions:
        """Return the given options as settings of the connector.

        Connectors read the environment by themselves.
        """
        settings = {"s3": self._of_s3a, "gs": self._of_gs, "az": self._of_abfss}[self._scheme]()
        return StorageOptions({name: value for name, value in settings.items() if value})

    def _is(self, name: str) -> bool:
        return self._given.get(name, "").strip().lower() in _TRUE

    def _of_s3a(self) -> dict[str, str]:
        given, settings = self._given, {}
        token = given.get("session_token") or given.get("token", "")
        if self._is("skip_signature"):
            settings["aws.credentials.provider"] = f"{_S3A}.AnonymousAWSCredentialsProvider"
        elif "access_key_id" in given:
            kind = "Temporary" if token else "Simple"
            settings["aws.credentials.provider"] = f"{_S3A}.{kind}AWSCredentialsProvider"
            settings["access.key"] = given["access_key_id"]
            settings["secret.key"] = given.get("secret_access_key", "")
            settings["session.token"] = token
        region = given.get("region") or given.get("default_region", "")
        names = ("endpoint_url_s3", "endpoint_url", "endpoint")
        endpoint = next((given[name] for name in names if name in given), "")
        if endpoint:
            settings["endpoint"] = endpoint
            settings["connection.ssl.enabled"] = str(endpoint.startswith("https:")).lower()
            is_by_path = not self._is("virtual_hosted_style_request")
            settings["path.style.access"] = str(is_by_path).lower()
            region = region or "us-east-1"  # the region that obstore signs requests for
        settings["endpoint.region"] = region
        # For this bucket only: the session may read others with its own credentials.
        return {f"fs.s3a.bucket.{self._bucket}.{name}": value for name, value in settings.items()}

    def _of_gs(self) -> dict[str, str]:
        if self._is("skip_signature"):
            return {"fs.gs.auth.type": "UNAUTHENTICATED"}
        names = ("service_account", "service_account_path")
        path = next((self._given[name] for name in names if name in self._given), "")
        if not path:
            return {}
        return {
            "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
            "fs.gs.auth.service.account.json.keyfile": path,
        }

    def _of_abfss(self) -> dict[str, str]:
        given, host = self._given, self._host
        if host is None:
            return {}

        def first(*names: str) -> str:
            return next((given[name] for name in names if name in given), "")

        if key := first("account_key", "access_key", "master_key"):
            kind, settings = "SharedKey", {"account.key": key}
        elif token := first("sas_key", "sas_token"):
            kind, settings = "SAS", {"sas.fixed.token": token}
        elif secret := first("client_secret"):
            tenant = first("tenant_id", "authority_id")
            login = first("authority_host").rstrip("/") or "https://login.microsoftonline.com"
            provider = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
            kind, settings = (
                "OAuth",
                {
                    "account.oauth.provider.type": provider,
                    "account.oauth2.client.id": first("client_id"),
                    "account.oauth2.client.secret": secret,
                    "account.oauth2.client.endpoint": f"{login}/{tenant}/oauth2/token",
                },
            )
        else:
            return {}
        settings["account.auth.type"] = kind
        return {f"fs.azure.{name}.{host}": value for name, value in settings.items()}


def _bare(service: Service, options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their bare names."""
    return {
        name.lower().removeprefix(service.option_prefix).removeprefix("storage_"): str(value)
        for name, value in options.items()
    }


def _azure_host(known: Mapping[str, str]) -> str | None:
    """Return the host of an account for the ABFS connector; None if unknown, or an emulator."""
    if known.get("use_emulator", "").lower() in _TRUE:
        return None
    if "endpoint" in known:
        match = _ENDPOINT.fullmatch(known["endpoint"])
        return None if match is None else f"{match['account']}.dfs.{match['domain']}"
    account = known.get("account_name")
    if not account:
        return None
    is_fabric = known.get("use_fabric_endpoint", "").lower() in _TRUE
    return f"{account}.dfs.{'fabric.microsoft.com' if is_fabric else 'core.windows.net'}"

"""What the file systems of Hadoop call buckets and containers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakebed.store.object_options import Service, environment_of

_ENDPOINT = re.compile(r"https://(?P<account>[a-z0-9]+)\.(blob|dfs)\.(?P<domain>[a-z0-9.-]+)/?")
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})


def hadoop_root(
    scheme: str, bucket: str, service: Service, options: Mapping[str, str]
) -> str | None:
    """Return the URI of a bucket without a final slash; None where Hadoop has none for it.

    Args:
        scheme: Of Lakebed's own URI: `s3`, `gs` or `az`.
        bucket: The bucket, or the container.
        service: Where it is.
        options: For the client of the service, as they were given. The environment has the rest.
    """
    if scheme == "az":
        host = _azure_host({**environment_of(service), **options})
        return None if host is None else f"abfss://{bucket}@{host}"
    return f"{'s3a' if scheme == 's3' else scheme}://{bucket}"


def _azure_host(settings: Mapping[str, str]) -> str | None:
    """Return where the ABFS connector finds an account; None if it is an emulator, or not told."""
    known = {
        name.lower().removeprefix("azure_").removeprefix("storage_"): str(value)
        for name, value in settings.items()
    }
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

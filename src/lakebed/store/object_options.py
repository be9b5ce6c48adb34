"""Settings of object stores, from options, then the environment, then the profile of AWS.

They are checked before a client is created: obstore accepts invalid values, and its Rust code
then panics at the first request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError, InvalidNameError
from lakebed.model.locations import check_endpoint, refuse_credentials

PROFILE = "profile"

_CLIENT_OPTIONS = frozenset(  # obstore.store.ClientConfig; they go to the HTTP client
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_DEFAULT_RETRIES = 5  # with obstore's backoff about 6 s, so that a wrong endpoint fails soon
_DEFAULT_RETRY_TIMEOUT_S = 60.0
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})

_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")
_REGION = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9-]+")
_ENDPOINT_NAME = re.compile(r"(^|_)(endpoint(_url(_s3)?)?|authority_host)$")
_ADDRESSES = frozenset({"account_name", "storage_account_name", "base_url", "use_emulator"})
_MANY_LINES = frozenset({"proxy_ca_certificate", "root_certificate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Differences between the object storage services.

    Attributes:
        class_name: The store class of obstore.
        extra: The extra of Lakebed that installs obstore.
        option_prefix: Optional prefix of the service's option names; in capitals, the prefix of
            its environment variables.
        lists_in_key_order: True if the service guarantees listings in key order.
        unmet_condition: A well-formed condition for `If-Match` that matches no object.
        credentials: Bare names of the options for credentials.
        options: Bare names of the other options in obstore's documentation.
    """

    class_name: str
    extra: str
    option_prefix: str
    lists_in_key_order: bool
    unmet_condition: Mapping[str, str]
    credentials: frozenset[str]
    options: frozenset[str]

    def bare(self, name: str) -> str:
        """Return the name of an option without its optional prefixes."""
        return name.lower().removeprefix(self.option_prefix).removeprefix("storage_")


SERVICES: Mapping[str, Service] = {
    "s3": Service(
        class_name="S3Store",
        extra="s3",
        option_prefix="aws_",
        lists_in_key_order=True,
        unmet_condition={"e_tag": '"00000000000000000000000000000000"'},
        credentials=frozenset(
            {
                "access_key_id",
                "container_authorization_token_file",
                "container_credentials_full_uri",
                "container_credentials_relative_uri",
                "profile",
                "role_arn",
                "role_session_name",
                "secret_access_key",
                "session_token",
                "skip_signature",
                "token",
                "web_identity_token_file",
            }
        ),
        options=frozenset(
            {
                "checksum_algorithm",
                "conditional_put",
                "copy_if_not_exists",
                "default_region",
                "disable_bulk_delete",
                "disable_tagging",
                "endpoint",
                "metadata_endpoint",
                "region",
                "request_payer",
                "server_side_encryption",
                "sse_bucket_key_enabled",
                "sse_kms_key_id",
                "endpoint_url_sts",
                "unsigned_payload",
                "virtual_hosted_style_request",
            }
        ),
    ),
    "gs": Service(
        class_name="GCSStore",
        extra="gcs",
        option_prefix="google_",
        lists_in_key_order=True,
        unmet_condition={"e_tag": '"1"', "version": "1"},
        credentials=frozenset(
            {
                "application_credentials",
                "bearer_token",
                "service_account",
                "service_account_key",
                "service_account_path",
                "skip_signature",
            }
        ),
        options=frozenset(
            {
                "base_url",
            }
        ),
    ),
    "az": Service(
        class_name="AzureStore",
        extra="azure",
        option_prefix="azure_",
        lists_in_key_order=False,
        unmet_condition={"e_tag": '"0x1"'},
        credentials=frozenset(
            {
                "access_key",
                "account_key",
                "authority_id",
                "bearer_token",
                "client_id",
                "client_secret",
                "credential_type",
                "fabric_session_token",
                "federated_token_file",
                "identity_endpoint",
                "master_key",
                "msi_endpoint",
                "msi_resource_id",
                "object_id",
                "sas_key",
                "sas_token",
                "skip_signature",
                "tenant_id",
                "token",
                "use_azure_cli",
                "use_emulator",
            }
        ),
        options=frozenset(
            {
                "account_name",
                "authority_host",
                "disable_tagging",
                "encryption_key",
                "endpoint",
                "fabric_cluster_identifier",
                "fabric_token_service_url",
                "fabric_workload_host",
                "use_fabric_endpoint",
            }
        ),
    ),
}
SERVICE_ALIASES = {"s3a": "s3"}  # Hadoop's name for it


def parse_url(url: str) -> tuple[str, str, str]:
    """Return scheme, bucket and prefix.

    Raises:
        InvalidInputError: The bucket is missing, the URL contains credentials, or the prefix has
            an empty component, `.` or `..`.
        InvalidNameError: The bucket's name is not valid.
    """
    refuse_credentials(url)
    scheme, separator, location = url.partition("://")
    scheme = SERVICE_ALIASES.get(scheme.lower(), scheme.lower())
    bucket, _, prefix = location.partition("/")
    prefix = prefix.strip("/")
    if not separator or scheme not in SERVICES or not bucket:
        msg = f"{url!r} does not name a bucket."
        raise InvalidInputError(msg, hint="Write it as s3://BUCKET/PREFIX, gs://… or az://….")
    if not _BUCKET.fullmatch(bucket):
        msg = f"{bucket!r} is not a valid bucket name."
        raise InvalidNameError(msg, hint="Names have letters, digits, '.', '-' and '_'.")
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        msg = f"{url!r} has an empty component, '.' or '..' in its prefix."
        raise InvalidInputError(msg, hint="Write the prefix without them.")
    return scheme, bucket, prefix


def known_options(service: Service) -> frozenset[str]:
    """Return the option names to suggest for an unknown one."""
    ours = {"max_retries", "retry_timeout_s", *([PROFILE] if service.extra == "s3" else [])}
    return service.options | service.credentials | _CLIENT_OPTIONS | ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's options, sorted by the component that receives them.

    Attributes:
        kind: The service that the options are for.
        service: Options for the client of the service.
        client: Options for the HTTP client. They include those of the environment, which obstore
            ignores as soon as any option is given.
        max_retries: Maximum number of retries of a request; conditional puts have none.
        retry_timeout_s: Maximum time for a request with its retries, in seconds.
        profile: Profile of AWS that was given as an option.
        addresses: The options and variables, as `name=value`, that select the service's address.
    """

    kind: Service
    service: Mapping[str, str]
    client: Mapping[str, str]
    max_retries: int
    retry_timeout_s: float
    profile: str | None
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, service: Service, options: Mapping[str, str]) -> Settings:
        """Sort and check options.

        Raises:
            InvalidInputError: A value cannot be used; the message names the option.
        """
        ours = {
            "max_retries": str(_DEFAULT_RETRIES),
            "retry_timeout_s": str(_DEFAULT_RETRY_TIMEOUT_S),
        }
        to_client, to_service = StorageOptions(_client_environment(service)), StorageOptions()
        profile = None
        for name, value in options.items():
            bare = name.lower().removeprefix(service.option_prefix)
            _check_value(bare, name, value)
            if bare in ours:
                ours[bare] = value
            elif bare in _CLIENT_OPTIONS:
                to_client[bare] = value
            elif bare == PROFILE and service.extra == "s3":
                profile = value
            else:
                # With its prefix: obstore knows some names of Azure only in that form.
                to_service[name.lower()] = value
        if service.extra == "s3":
            _prefer_given_endpoint(to_service)
        for name, value in _environment_in_use(service, to_service):
            _check_value(name.lower().removeprefix(service.option_prefix), name, value)
        retries, timeout_s = ours["max_retries"], ours["retry_timeout_s"]
        try:
            max_retries, retry_timeout_s = int(retries), float(timeout_s)
        except ValueError as exc:
            msg = f"max_retries {retries!r} or retry_timeout_s {timeout_s!r} is not a number."
            raise InvalidInputError(msg, hint="Write numbers such as '5' and '60'.") from exc
        return cls(
            kind=service,
            service=to_service,
            client=to_client,
            max_retries=max_retries,
            retry_timeout_s=retry_timeout_s,
            profile=profile,
            addresses=tuple(_addresses(service, to_service)),
        )

    @property
    def puts_unconditionally(self) -> bool:
        """True if the options switch conditional puts of S3 off."""
        return (self.of_s3("conditional_put") or "").strip().lower() == "disabled"

    @property
    def is_express(self) -> bool:
        """True if the service is S3 Express, whose listings are not ordered."""
        return (self.of_s3("s3_express") or "").strip().lower() in _TRUE

    @property
    def given_credentials(self) -> frozenset[str]:
        """Bare names of the given options for credentials."""
        return self.kind.credentials.intersection(map(self.kind.bare, self.service))

    @property
    def found_credentials(self) -> frozenset[str]:
        """Bare option names of the environment variables that hold credentials."""
        return self.kind.credentials.intersection(map(self.kind.bare, environment_of(self.kind)))

    def of_s3(self, name: str) -> str | None:
        """Return an option for S3, or else its environment variable; None for neither."""
        return self.given_for_s3(name) or os.environ.get(f"AWS_{name.upper()}") or None

    def given_for_s3(self, name: str) -> str | None:
        """Return an option that was given for S3."""
        return self.service.get(name) or self.service.get(f"aws_{name}") or None


def environment_of(service: Service) -> dict[str, str]:
    """Return the environment variables of a service by name."""
    prefix = service.option_prefix.upper()
    return {name: value for name, value in os.environ.items() if name.startswith(prefix) and value}


def _addresses(service: Service, options: Mapping[str, str]) -> Iterator[str]:
    """Yield the options and environment variables that select the service's address."""
    bare = {
        name.lower().removeprefix(service.option_prefix): value
        for name, value in {**environment_of(service), **options}.items()
    }
    for name, value in sorted(bare.items()):
        if _ENDPOINT_NAME.search(name) or name in _ADDRESSES:
            yield f"{name}={value}"


def _client_environment(service: Service) -> dict[str, str]:
    prefix = service.option_prefix.upper()
    bare = {name.removeprefix(prefix).lower(): v for name, v in environment_of(service).items()}
    return {name: value for name, value in bare.items() if name in _CLIENT_OPTIONS}


_GENERAL_ENDPOINTS = ("endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url")
_S3_ENDPOINT = "aws_endpoint_url_s3"


def _prefer_given_endpoint(options: dict[str, str]) -> None:
    """Give an endpoint option precedence over AWS_ENDPOINT_URL_S3, which obstore prefers."""
    given = [options[name] for name in _GENERAL_ENDPOINTS if name in options]
    if given:
        options.setdefault(_S3_ENDPOINT, given[-1])


# Variables that obstore reads. Others of the same prefixes belong to other programs.
_REGIONS = frozenset({"region", "default_region"})
_KEYS = frozenset({"access_key_id", "secret_access_key", "session_token", "token"})
_ENDPOINTS = frozenset(
    {"endpoint", "endpoint_url", "endpoint_url_s3", "metadata_endpoint"}
    | {"storage_endpoint", "authority_host"}
)
_OF_AWS = _REGIONS | _KEYS | _ENDPOINTS


def _environment_in_use(service: Service, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the environment variables that obstore uses, and panics about if one is wrong."""
    used = _OF_AWS if service.extra == "s3" else _ENDPOINTS
    for name, value in environment_of(service).items():
        bare = name.lower().removeprefix(service.option_prefix)
        is_given = bare in options or name.lower() in options
        if bare in _GENERAL_ENDPOINTS:
            is_given = is_given or _S3_ENDPOINT in options
        if bare in used and not is_given:
            yield name, value


def _check_value(bare: str, name: str, value: str) -> None:
    if bare not in _MANY_LINES and not value.startswith("{") and not value.isprintable():
        msg = f"Option {name} contains a line break or another character that cannot be sent."
        raise InvalidInputError(msg, hint="Check for a line break at the end, as from a file.")
    if _ENDPOINT_NAME.search(bare) and bare != "use_fabric_endpoint":
        check_endpoint(name, value)
    if bare in _REGIONS and not _REGION.fullmatch(value):
        msg = f"Option {name} {value!r} is not a valid region."
        raise InvalidInputError(msg, hint="Regions look like eu-west-1.")

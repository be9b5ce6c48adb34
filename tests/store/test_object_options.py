"""What an object store is told: options, then the environment, then a profile of AWS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakebed.store
from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    ObjectNotFoundError,
    StorageError,
)
from lakebed.store import Store, open_store
from lakebed.store.object import translating_object_store_errors

# `service` is the fixture of conftest.py.
SOURCE = Path(lakebed.store.__file__).parents[2]
KEYS = {"access_key_id": "given", "secret_access_key": "given", "max_retries": "0"}
MISSING = (404, {}, b"")


def ask(url: str = "s3://lake/pre", **options: str) -> None:
    """Send one request, which the service answers with "missing"."""
    store = open_store(url, storage_options={"max_retries": "0", **options})
    with pytest.raises(ObjectNotFoundError):
        store.get("a")


def signed_by(service: Any) -> tuple[str, str]:
    """Return the key and the region that the last request was signed with."""
    scope = service.requests[-1].headers["authorization"].partition("Credential=")[2]
    key, _, region, *_ = scope.split("/")
    return key, region


# What the client would panic about


@pytest.mark.parametrize(
    "endpoint",
    [
        "localhost:9000",
        "minio",
        "//minio:9000",
        "http//minio:9000",
        "https:/minio",
        "http://min io",
        "http://",
        "ftp://minio",
        "http://[::1",
        "http://[::g]",
        "http://minio:99999",
        "http://minio:port",
        "http://1.2.3.999:1",
        "http://münio",
        " http://minio",
        "http://minio/<a>",
        "http://minio?a=b",
        "not a url",
        "",
    ],
)
def test_endpoint_that_is_no_url_is_refused_when_the_store_is_opened(endpoint: str) -> None:
    with pytest.raises(InvalidInputError, match="endpoint"):
        open_store("s3://lake", storage_options={**KEYS, "endpoint": endpoint})


@pytest.mark.parametrize(
    "endpoint", ["HTTP://127.0.0.1:9", "http://[::1]:9", "https://s3.example.org/base/", "http://a"]
)
def test_endpoint_that_is_a_url_is_taken(endpoint: str) -> None:
    assert open_store("s3://lake", storage_options={**KEYS, "endpoint": endpoint})


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://lake", "aws_endpoint_url"),
        ("s3://lake", "aws_endpoint_url_s3"),
        ("s3://lake", "metadata_endpoint"),
        ("az://lake", "azure_storage_endpoint"),
        ("az://lake", "authority_host"),
    ],
)
def test_every_endpoint_is_checked_in_options_and_environment(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match=name):
        open_store(url, storage_options={name: "localhost:9000"})

    variable = name.upper() if name.startswith(("aws", "azure")) else f"AWS_{name.upper()}"
    variable = variable.replace("AWS_AUTHORITY", "AZURE_AUTHORITY")
    monkeypatch.setenv(variable, "localhost:9000")
    with pytest.raises(InvalidInputError, match=variable):
        open_store(url)


def test_environment_that_an_option_overrides_is_not_looked_at(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    monkeypatch.setenv("AWS_REGION", "no region")
    service.script(MISSING)

    ask(endpoint=service.url, allow_http="true", region="eu-west-1", **KEYS)

    assert signed_by(service) == ("given", "eu-west-1")


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://lake", "AWS_QUEUE_ENDPOINT"),
        ("az://lake", "AZURE_SERVICEBUS_ENDPOINT"),
        ("az://lake", "AZURE_REGION"),
        ("gs://lake", "GOOGLE_REGION"),
    ],
)
def test_environment_of_other_programs_is_left_alone(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "West Europe")
    account = {"account_name": "acc"} if url.startswith("az") else {}

    assert open_store(url, storage_options=account)


@pytest.mark.parametrize("bucket", ["a b", "a<b", "ü", "a?b", "[a", ".."])
def test_bucket_that_cannot_be_one_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidNameError, match="bucket"):
        open_store(f"s3://{bucket}/pre")


@pytest.mark.parametrize("region", ["eu west", "ü", "a/b"])
def test_region_that_cannot_be_one_is_refused(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="region"):
        open_store("s3://lake", storage_options={"region": region})
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    with pytest.raises(InvalidInputError, match="AWS_DEFAULT_REGION"):
        open_store("s3://lake")


@pytest.mark.parametrize("name", ["access_key_id", "secret_access_key", "session_token"])
def test_key_with_a_line_break_is_refused_without_being_shown(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match=name) as caught:
        open_store("s3://lake", storage_options={**KEYS, name: "planted\n"})
    assert "planted" not in str(caught.value)
    monkeypatch.setenv(f"AWS_{name.upper()}", "planted\n")
    with pytest.raises(InvalidInputError, match=name.upper()):
        open_store("s3://lake")


def test_panic_of_the_client_is_an_error_of_the_storage() -> None:
    # Its class is made by Rust and cannot be imported; obstore panics where a display of its
    # configuration meets an option of the HTTP client.
    import obstore.store

    client = obstore.store.S3Store("lake", config={"aws_allow_http": "true"})  # type: ignore[typeddict-unknown-key]

    with (
        pytest.raises(StorageError, match="s3://lake/a") as caught,
        translating_object_store_errors("s3://lake/a"),
    ):
        _ = client.config

    assert type(caught.value.__cause__).__name__ == "PanicException"
    assert not isinstance(caught.value.__cause__, Exception)
    assert not caught.value.retryable


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_a_program_passes_untouched(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, translating_object_store_errors("s3://lake/a"):
        raise error

    assert caught.value is error


# The environment


@pytest.mark.parametrize("options", [{}, {"timeout": "5s"}], ids=["none", "another"])
def test_http_client_is_told_what_the_environment_says(
    service: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_USER_AGENT", "lakebed-test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
    service.script(MISSING)

    ask(**KEYS, **options)

    assert service.requests[0].headers["user-agent"] == "lakebed-test"


def test_options_go_before_the_environment(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    monkeypatch.setenv("AWS_REGION", "eu-west-9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment")
    # Of its own accord obstore prefers this one to an endpoint that was given.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    service.script(MISSING)

    ask(endpoint=service.url, allow_http="true", region="eu-west-1", **KEYS)

    assert signed_by(service) == ("given", "eu-west-1")


# Profiles


@pytest.fixture
def profiles(service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two profiles in a home of their own, and a service that needs no other option."""
    home = tmp_path / ".aws"
    home.mkdir()
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = default-key\naws_secret_access_key = x\n"
        "[work]\naws_access_key_id = work-key\naws_secret_access_key = y\n"
    )
    (home / "config").write_text(
        "[default]\nregion = eu-central-1\n[profile work]\nregion = eu-west-3\n"
        "[profile bare]\nregion = eu-west-3\n"
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    service.script(MISSING)
    return home


def test_default_profile_signs_where_nothing_else_says_who_asks(
    service: Any, profiles: Path
) -> None:
    ask()

    assert signed_by(service) == ("default-key", "eu-central-1")


def test_profile_is_that_of_the_environment(
    service: Any, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")

    ask()

    assert signed_by(service) == ("work-key", "eu-west-3")


def test_profile_that_is_given_goes_before_the_environment(
    service: Any, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "bare")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment")

    ask(profile="work")

    assert signed_by(service) == ("work-key", "eu-west-3")


def test_keys_and_region_of_the_environment_go_before_a_profile(
    service: Any, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    ask()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment")
    ask()

    assert service.requests[0].headers["authorization"].split("/")[2] == "us-west-2"
    assert signed_by(service) == ("environment", "us-west-2")


def test_options_go_before_a_profile(
    service: Any, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")

    ask(region="eu-west-1", **KEYS)
    assert signed_by(service) == ("given", "eu-west-1")

    ask(skip_signature="true")
    assert "authorization" not in service.requests[-1].headers


def test_credentials_of_a_process_that_a_profile_names_are_taken(
    service: Any, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = '{"Version": 1, "AccessKeyId": "told-key", "SecretAccessKey": "z"}'
    (profiles / "told.json").write_text(told)
    with (profiles / "config").open("a") as config:
        config.write(f"[profile told]\ncredential_process = cat {profiles / 'told.json'}\n")
    monkeypatch.setenv("AWS_PROFILE", "told")

    ask()

    assert signed_by(service)[0] == "told-key"


def test_unknown_profile_is_refused_when_the_store_is_opened(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="'nobody'"):
        open_store("s3://lake", storage_options={"profile": "nobody"})
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(InvalidInputError, match="'nobody'"):
        open_store("s3://lake")


def test_profile_without_credentials_is_told_at_the_first_request(profiles: Path) -> None:
    store = open_store("s3://lake", storage_options={"profile": "bare", "max_retries": "0"})

    with pytest.raises(AccessDeniedError, match="'bare' has no credentials"):
        store.get("a")


def test_other_services_know_no_profile(profiles: Path) -> None:
    with pytest.raises(LakebedError, match="profile"):
        open_store("gs://lake", storage_options={"profile": "work"})


@pytest.mark.thorough
def test_without_boto3_a_named_profile_says_what_is_missing_and_files_are_left_alone(
    profiles: Path,
) -> None:
    program = """
import os, sys
sys.modules["boto3"] = None
from lakebed.errors import MissingDependencyError
from lakebed.store import open_store
print(open_store("s3://lake"))
os.environ["AWS_PROFILE"] = "work"
try:
    open_store("s3://lake")
except MissingDependencyError as error:
    print(error)
"""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, check=True, capture_output=True, text=True
    )

    opened, missing = done.stdout.splitlines()
    assert "s3://lake" in opened
    assert "'work'" in missing
    assert "lakebed[s3]" in missing


@pytest.mark.thorough
def test_boto3_is_not_imported_where_no_profile_is_used() -> None:
    program = """
import sys
from lakebed.store import open_store
open_store("s3://lake", storage_options={"region": "eu-west-1"})
print("boto3" in sys.modules, "botocore" in sys.modules)
"""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, check=True, capture_output=True, text=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_pickled_store_has_the_profile_that_was_given(service: Any, profiles: Path) -> None:
    import pickle

    store: Store = open_store("s3://lake", storage_options={"profile": "work"})

    with pytest.raises(ObjectNotFoundError):
        pickle.loads(pickle.dumps(store)).get("a")

    assert signed_by(service)[0] == "work-key"

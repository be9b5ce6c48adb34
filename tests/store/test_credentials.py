"""Who asks a service: what the tools of each cloud know, and keys that are not mixed."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakebed.store
from lakebed.errors import AccessDeniedError, LakebedError, ObjectNotFoundError, StorageError
from lakebed.store import Store, object_options, open_store
from lakebed.store.object_options import SERVICES, known_options

SOURCE = Path(lakebed.store.__file__).parents[2]
SECRET = "pLaNtEd/SeCrEt+0123"
MISSING = (404, {}, b"")


def opened(url: str, service: Any, **options: str) -> Store:
    given = {"allow_http": "true", "max_retries": "0", **options}
    name = "base_url" if url.startswith("gs") else "endpoint"
    return open_store(url, storage_options={name: service.url, **given})


def ask(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.get("a")


# AWS


def test_given_keys_are_not_joined_with_a_token_of_the_environment(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "environment")
    service.script(MISSING)

    ask(opened("s3://lake", service, access_key_id="given", secret_access_key="given"))
    ask(opened("s3://lake", service, region="eu-west-1"))
    ask(
        opened(
            "s3://lake",
            service,
            access_key_id="given",
            secret_access_key="given",
            session_token="own",
        )
    )

    alone, environment, with_token = (request.headers for request in service.requests)
    assert "Credential=given/" in alone["authorization"]
    assert "x-amz-security-token" not in alone
    assert environment["x-amz-security-token"] == "environment"
    assert with_token["x-amz-security-token"] == "own"


# Google


@pytest.fixture
def federated(service: Any, tmp_path: Path) -> Path:
    """Credentials of somebody who is known elsewhere, as `gcloud iam workforce-pools create-cred-config` writes them."""
    pytest.importorskip("google.auth", reason="needs the extra gcs")
    subject = tmp_path / "subject"
    subject.write_text("a-subject")
    path = tmp_path / "federated.json"
    path.write_text(
        json.dumps(
            {
                "type": "external_account",
                "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/q",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": f"{service.url}/token",
                "credential_source": {"file": str(subject)},
            }
        )
    )
    return path


TOKEN = json.dumps(
    {
        "access_token": "exchanged",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
).encode()


@pytest.mark.parametrize("by", ["environment", "option", "gcloud"])
def test_federated_credentials_of_google_are_exchanged_for_a_token(
    service: Any, federated: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {}
    if by == "environment":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(federated))
    elif by == "option":
        options = {"application_credentials": str(federated)}
    else:
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(federated.parent))
        federated.rename(federated.with_name("application_default_credentials.json"))
    service.script((200, {"content-type": "application/json"}, TOKEN), MISSING)

    store = opened("gs://lake", service, **options)
    assert service.requests == []
    ask(store)
    ask(store)
    service.script((200, {"content-type": "application/json"}, TOKEN), MISSING)
    ask(pickle.loads(pickle.dumps(store)))

    paths = [request.path for request in service.requests]
    assert paths == ["/token", "/lake/a", "/lake/a", "/token", "/lake/a"]
    assert b"a-subject" in service.requests[0].body
    tokens = {one.headers["authorization"] for one in service.requests if one.method == "GET"}
    assert tokens == {"Bearer exchanged"}


def test_given_key_of_google_goes_before_the_default_credentials(
    service: Any, federated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(federated.parent))
    federated.rename(federated.with_name("application_default_credentials.json"))
    service.script(MISSING)

    ask(opened("gs://lake", service, skip_signature="true"))

    assert [request.method for request in service.requests] == ["GET"]
    assert "authorization" not in service.requests[0].headers


def test_exchange_that_is_refused_is_told_without_the_token(
    service: Any, federated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(federated))
    (federated.parent / "subject").write_text(SECRET)
    service.script((400, {"content-type": "application/json"}, b'{"error": "invalid_grant"}'))

    with pytest.raises(AccessDeniedError) as caught:
        opened("gs://lake", service).get("a")

    assert "invalid_grant" in str(caught.value)
    assert SECRET not in f"{caught.value!r}{caught.value.__cause__!r}"


# Azure


@pytest.fixture
def logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who has called `az login`."""
    pytest.importorskip("azure.identity", reason="needs the extra azure")
    folder = tmp_path / "bin"
    folder.mkdir()
    answer = {
        "accessToken": "of-the-cli",
        "expiresOn": "2099-01-01 00:00:00.000000",
        "expires_on": 4070908800,
        "tokenType": "Bearer",
    }
    program = folder / "az"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")


def test_default_chain_of_azure_is_asked_where_nothing_says_who_asks(
    service: Any, logged_in: None
) -> None:
    service.script(MISSING)

    store = opened("az://lake", service, account_name="acc")
    ask(store)
    ask(pickle.loads(pickle.dumps(store)))

    tokens = {request.headers["authorization"] for request in service.requests}
    assert tokens == {"Bearer of-the-cli"}


@pytest.mark.parametrize("by", ["option", "environment"])
def test_token_of_azure_that_is_given_goes_before_the_default_chain(
    service: Any, logged_in: None, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"account_name": "acc"}
    if by == "option":
        options["bearer_token"] = "given"
    else:
        monkeypatch.setenv("AZURE_STORAGE_TOKEN", "given")
    service.script(MISSING)

    ask(opened("az://lake", service, **options))

    assert service.requests[0].headers["authorization"] == "Bearer given"


def test_nobody_who_is_logged_in_is_told_with_a_remedy(
    service: Any, logged_in: None, tmp_path: Path
) -> None:
    (tmp_path / "bin" / "az").write_text("#!/bin/sh\necho 'Please run: az login' >&2\nexit 1\n")

    with pytest.raises(AccessDeniedError, match="az login"):
        opened("az://lake", service, account_name="acc").get("a")


@pytest.mark.thorough
def test_without_the_packages_of_the_clouds_stores_open_and_what_needs_them_says_so(
    tmp_path: Path,
) -> None:
    program = """
import os, sys
sys.modules["google.auth"] = sys.modules["azure.identity"] = None
from lakebed.errors import MissingDependencyError
from lakebed.store import open_store
print(open_store("az://lake", storage_options={"account_name": "acc"}))
print(open_store("gs://lake"))
os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = sys.argv[1]
try:
    open_store("gs://lake")
except MissingDependencyError as error:
    print(error)
"""
    path = tmp_path / "federated.json"
    path.write_text('{"type": "external_account"}')
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "CLOUDSDK_CONFIG": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )

    azure, google, missing = done.stdout.splitlines()
    assert "az://lake" in azure
    assert "gs://lake" in google
    assert "'external_account'" in missing
    assert "lakebed[gcs]" in missing


# Names of options


@pytest.mark.parametrize(
    ("url", "name", "meant"),
    [
        ("s3://lake", "regoin", "region"),
        ("s3://lake", "aws_acces_key_id", "access_key_id"),
        ("s3://lake", "allow_htpp", "allow_http"),
        ("gs://lake", "service_acount", "service_account"),
        ("az://lake", "azure_storage_acount_name", "account_name"),
    ],
)
def test_unknown_option_is_refused_with_the_name_that_was_meant(
    url: str, name: str, meant: str
) -> None:
    with pytest.raises(LakebedError, match=name) as caught:
        open_store(url, storage_options={name: SECRET})

    assert caught.value.code == "invalid-input"
    assert caught.value.hint == f"Did you mean {meant!r}?"
    assert SECRET not in str(caught.value)


def test_option_that_is_like_none_is_answered_with_all() -> None:
    with pytest.raises(LakebedError) as caught:
        open_store("gs://lake", storage_options={"xyzzy": "1"})

    assert "service_account_key" in caught.value.hint
    assert "region" not in caught.value.hint


@pytest.mark.parametrize(
    ("scheme", "module", "names"),
    [("s3", "_aws", "S3Config"), ("gs", "_gcs", "GCSConfig"), ("az", "_azure", "AzureConfig")],
)
def test_names_are_those_of_the_client(scheme: str, module: str, names: str) -> None:
    import obstore

    folder = Path(obstore.__file__).parent / "_store"
    text = (folder / f"{module}.pyi").read_text()
    body = re.search(rf"class {names}\(TypedDict.*?(?=\nclass )", text, re.DOTALL)[0]
    documented = set(re.findall(r"^    ([a-z_]+): ", body, re.MULTILINE))
    # Of the URL; and one that is documented, and called endpoint_url_sts.
    others = {"bucket", "container_name", "sts_endpoint"}

    assert documented - others <= known_options(SERVICES[scheme])
    assert SERVICES[scheme].options - documented <= {"endpoint_url_sts"}


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (scheme, name)
        for scheme, service in SERVICES.items()
        for name in sorted(known_options(service) - {object_options.PROFILE})
    ],
)
def test_each_known_option_is_one_that_the_client_takes(scheme: str, name: str) -> None:
    with pytest.raises(LakebedError) as caught:
        open_store(f"{scheme}://lake", storage_options={name: "\n", "max_retries": "\n"})

    assert "storage option" not in str(caught.value)


def test_log_of_the_client_libraries_is_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    with pytest.raises(StorageError):
        open_store(
            "s3://lake",
            storage_options={
                "endpoint": "http://127.0.0.1:9",
                "allow_http": "true",
                "access_key_id": "me",
                "secret_access_key": SECRET,
                "max_retries": "0",
            },
        ).get("a")

    assert SECRET not in caplog.text

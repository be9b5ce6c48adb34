"""What Hadoop calls the objects of a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakebed
from lakebed.store import open_store
from lakebed.testing import CountingStore

KEY = "d/data/dt=2013-01-01/name=a%20b é/x.parquet"
KEYS = {"access_key_id": "a", "secret_access_key": "b"}


def test_a_directory_is_of_the_local_file_system(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a lake %20")

    assert store.hadoop_uri(KEY) == f"file://{tmp_path}/a lake %20/{KEY}"


def test_memory_has_no_name_that_others_know() -> None:
    assert open_store("memory://lake").hadoop_uri(KEY) is None


@pytest.mark.parametrize(
    ("url", "options", "uri"),
    [
        ("s3://lake", KEYS, f"s3a://lake/{KEY}"),
        ("s3a://lake/pre fix/%", KEYS, f"s3a://lake/pre fix/%/{KEY}"),
        ("s3://lake", {**KEYS, "endpoint": "http://localhost:9000"}, f"s3a://lake/{KEY}"),
        ("gs://lake/pre", {"skip_signature": "true"}, f"gs://lake/pre/{KEY}"),
        (
            "az://lake/pre",
            {"account_name": "ours", "skip_signature": "true"},
            f"abfss://lake@ours.dfs.core.windows.net/pre/{KEY}",
        ),
        (
            "az://lake",
            {
                "azure_storage_account_name": "ours",
                "azure_storage_endpoint": "https://ours.blob.core.chinacloudapi.cn",
                "skip_signature": "true",
            },
            f"abfss://lake@ours.dfs.core.chinacloudapi.cn/{KEY}",
        ),
        (
            "az://lake",
            {
                "account_name": "onelake",
                "use_fabric_endpoint": "true",
                "skip_signature": "true",
            },
            f"abfss://lake@onelake.dfs.fabric.microsoft.com/{KEY}",
        ),
    ],
)
def test_a_bucket_has_the_name_that_its_connector_knows(
    url: str, options: dict[str, str], uri: str
) -> None:
    store = open_store(url, storage_options=options)

    assert store.hadoop_uri(KEY) == uri
    assert CountingStore(store).hadoop_uri(KEY) == uri


def test_the_account_of_azure_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "theirs")

    store = open_store("az://lake", storage_options={"skip_signature": "true"})

    assert store.hadoop_uri(KEY) == f"abfss://lake@theirs.dfs.core.windows.net/{KEY}"


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "devstoreaccount1", "use_emulator": "true"},
        {"account_name": "ours", "endpoint": "http://127.0.0.1:10000/ours", "allow_http": "true"},
    ],
)
def test_an_emulator_of_azure_has_no_name_in_hadoop(options: dict[str, str]) -> None:
    store = open_store("az://lake", storage_options={**options, "skip_signature": "true"})

    assert store.hadoop_uri(KEY) is None


S3 = "fs.s3a.bucket.lake."
PROVIDER = f"{S3}aws.credentials.provider"
HOST = "ours.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("url", "options", "settings"),
    [
        ("s3://lake/pre", {}, {}),
        (
            "s3://lake/pre",
            {"access_key_id": "a", "secret_access_key": "b", "region": "eu-west-1"},
            {
                PROVIDER: "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
                f"{S3}access.key": "a",
                f"{S3}secret.key": "b",
                f"{S3}endpoint.region": "eu-west-1",
            },
        ),
        (
            "s3a://lake",
            {
                "aws_access_key_id": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "aws_session_token": "c",
                "aws_endpoint_url": "http://localhost:9000",
                "allow_http": "true",
            },
            {
                PROVIDER: "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
                f"{S3}access.key": "a",
                f"{S3}secret.key": "b",
                f"{S3}session.token": "c",
                f"{S3}endpoint": "http://localhost:9000",
                f"{S3}connection.ssl.enabled": "false",
                f"{S3}path.style.access": "true",
                f"{S3}endpoint.region": "us-east-1",
            },
        ),
        (
            "s3://lake",
            {"skip_signature": "true", "region": "us-east-2"},
            {
                PROVIDER: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
                f"{S3}endpoint.region": "us-east-2",
            },
        ),
        ("gs://lake", {"skip_signature": "true"}, {"fs.gs.auth.type": "UNAUTHENTICATED"}),
        (
            "az://lake",
            {"account_name": "ours", "account_key": "a2V5"},
            {
                f"fs.azure.account.auth.type.{HOST}": "SharedKey",
                f"fs.azure.account.key.{HOST}": "a2V5",
            },
        ),
        (
            "az://lake",
            {"account_name": "ours", "sas_key": "sv=1&sig=x"},
            {
                f"fs.azure.account.auth.type.{HOST}": "SAS",
                f"fs.azure.sas.fixed.token.{HOST}": "sv=1&sig=x",
            },
        ),
        (
            "az://lake",
            {
                "account_name": "ours",
                "azure_storage_client_id": "app",
                "azure_storage_client_secret": "hush",
                "azure_storage_tenant_id": "tenant",
            },
            {
                f"fs.azure.account.auth.type.{HOST}": "OAuth",
                f"fs.azure.account.oauth.provider.type.{HOST}": (
                    "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
                ),
                f"fs.azure.account.oauth2.client.id.{HOST}": "app",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "hush",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": (
                    "https://login.microsoftonline.com/tenant/oauth2/token"
                ),
            },
        ),
    ],
)
def test_what_was_given_is_said_in_the_words_of_the_connector(
    url: str, options: dict[str, str], settings: dict[str, str]
) -> None:
    store = open_store(url, storage_options=options)

    assert store.hadoop_settings() == settings
    assert CountingStore(store).hadoop_settings() == settings


def test_a_service_account_of_google_is_told_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    account = {"client_email": "a@b", "private_key": "", "private_key_id": ""}
    path.write_text(json.dumps({**account, "disable_oauth": True}))

    store = open_store("gs://lake", storage_options={"service_account": str(path)})

    assert store.hadoop_settings() == {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": str(path),
    }


def test_what_the_environment_says_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    assert open_store("s3://lake").hadoop_settings() == {}


def test_settings_of_a_session_are_shown_without_secrets(tmp_path: Path) -> None:
    options = {"access_key_id": "a", "secret_access_key": "wJalrXUtnFEMI"}
    lake = lakebed.open_repository("s3://lake", storage_options=options)

    settings = lakebed.spark.hadoop_options(lake)

    assert settings["spark.hadoop.fs.s3a.bucket.lake.secret.key"] == "wJalrXUtnFEMI"
    assert f"{S3}secret.key" in lakebed.spark.hadoop_options(lake, prefix="")
    assert "wJalrXUtnFEMI" not in f"{settings} {settings!r}"
    assert lakebed.spark.hadoop_options(lakebed.open_repository(tmp_path)) == {}

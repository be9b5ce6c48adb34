"""What Hadoop calls the objects of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

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

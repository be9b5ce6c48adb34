"""From URLs to stores."""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from pathlib import Path

import pytest

from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError
from lakebed.store import open_store
from lakebed.store.memory import MemoryStore
from lakebed.store.posix import PosixStore


@pytest.mark.parametrize("form", ["path", "text", "final-slash", "url", "hadoop-url", "localhost"])
def test_every_form_of_a_directory_opens_the_same_store(tmp_path: Path, form: str) -> None:
    root = tmp_path / "a lake %20?#é"
    uri = root.as_uri()
    forms = {
        "path": root,
        "text": str(root),
        "final-slash": f"{root}/",
        "url": uri,
        "hadoop-url": uri.replace("file:///", "file:/"),
        "localhost": uri.replace("file:///", "file://localhost/"),
    }

    store = open_store(forms[form])

    assert isinstance(store, PosixStore)
    assert store.uri == uri
    assert store.local_path("a") == root / "a"
    assert open_store(store.uri).uri == store.uri


def test_path_may_begin_with_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    store = open_store("~/lake")

    assert store.local_path("a") == tmp_path / "lake" / "a"


def test_memory_stores_of_one_name_are_one_store() -> None:
    name = uuid.uuid4().hex

    open_store(f"memory://{name}").put("d/a", b"x")

    assert open_store(f"memory://{name}/").get("d/a").data == b"x"
    assert open_store(f"memory://{name}/d").get("a").data == b"x"
    assert [entry.key for entry in open_store(f"memory://{name}/d").list()] == ["a"]
    assert list(open_store(f"memory://{name}2").list()) == []
    assert isinstance(open_store(f"memory://{name}"), MemoryStore)
    assert not open_store(f"memory://{name}").is_shared


def test_unknown_scheme_is_named_with_those_that_are_known() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store("ftp://host/lake")

    assert "'ftp'" in caught.value.message
    for scheme in ("az", "file", "gs", "memory", "s3"):
        assert scheme in caught.value.message


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("https://example.org/lake", "endpoint"),
        ("abfss://c@a.dfs.core.windows.net/lake", "az://"),
    ],
)
def test_scheme_that_is_not_served_says_what_to_do_instead(url: str, remedy: str) -> None:
    with pytest.raises(InvalidInputError, match="No store supports") as caught:
        open_store(url)

    assert remedy in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory://",
        "memory:///",
        "memory://a//b",
        "file://host/lake",
        "file:///lake?x",
        "file://",
    ],
)
def test_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(url)


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for url, options in [
        (str(tmp_path), {"endpoint": "x"}),
        (str(tmp_path), {"durable": "perhaps"}),
        ("memory://a", {"durable": "true"}),
    ]:
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            open_store(url, storage_options=options)


def test_directory_can_be_opened_without_waiting_for_the_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path, storage_options={"durable": "false"})

    store.put("a", b"x")

    assert store.get("a").data == b"x"


def test_another_package_can_add_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "added_store.py").write_text(
        "from lakebed.store.memory import MemoryStore\n"
        "def open_it(url, options):\n"
        "    return MemoryStore('added-' + options['name'])\n"
    )
    metadata = tmp_path / "added_store-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: added-store\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[lakebed.store]\nadded = added_store:open_it\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    store = open_store("added://anything", storage_options={"name": "x"})

    assert store.uri == "memory://added-x"
    with pytest.raises(InvalidInputError, match="added"):
        open_store("unheard://of")


def test_options_that_are_no_mapping_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInputError, match="of type str") as caught:
        open_store("s3://lake", storage_options="secret_access_key=pLaNtEd")  # type: ignore[arg-type]

    assert "pLaNtEd" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("s3://b", {"region": 3}, "Option region '3' is not a valid region"),
        ("s3://b", {"region": None}, "Storage option 'region' is of type NoneType"),
        ("s3://b", {"secret_access_key": b"hush"}, "'secret_access_key' is of type bytes"),
        ("s3://b", {3: "a"}, "3 is not the name of a storage option"),
        ("hdfs://name/lake", {"user": ["ann"]}, "'user' is of type list"),
        ("memory://b", {"region": {}}, "'region' is of type dict"),
    ],
)
def test_an_option_that_is_no_text_is_named_and_not_shown(
    url: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidInputError) as info:
        open_store(url, storage_options=options)

    assert told in info.value.message
    assert "hush" not in str(info.value)


def test_numbers_and_truth_values_are_their_texts(tmp_path: Path) -> None:
    assert StorageOptions({"n": 3, "t": True, "d": dt.timedelta(seconds=1.5)}) == {  # type: ignore[dict-item]
        "n": "3",
        "t": "true",
        "d": "1500ms",
    }
    open_store(tmp_path, storage_options={"durable": False})  # type: ignore[dict-item]
    options = {"region": "eu-west-1", "allow_http": True, "max_retries": 3}
    open_store("s3://b", storage_options=options)  # type: ignore[arg-type]

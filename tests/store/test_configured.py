"""Storage options that are given once: by a variable, and by a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import as_user_of_no_rights

import lakebed
from lakebed.arrow.reading.files import find_files
from lakebed.errors import InvalidInputError
from lakebed.store import open_store
from lakebed.store.configured import configured_options
from lakebed.store.locate import effective_options

SECRET = "pLaNtEd/SeCrEt+0123"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("LAKEBED_CONFIG", str(path))
    return path


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda text: monkeypatch.setenv("LAKEBED_STORAGE_OPTIONS", text)


def options(url: str = "s3://lake/pre", **given: str) -> dict[str, str]:
    return dict(effective_options(url, given))


# What goes first


def test_call_goes_before_the_variable_and_that_before_the_file(
    config: Path, variable: Any
) -> None:
    config.write_text(
        '[storage."s3://lake"]\nregion = "file"\nendpoint = "http://file"\ntimeout = "9s"\n'
    )
    variable("region=variable,endpoint=http://variable")

    assert options(region="call") == {
        "region": "call",
        "endpoint": "http://variable",
        "timeout": "9s",
    }


def test_longest_section_goes_first_and_the_others_fill_it_up(config: Path) -> None:
    config.write_text(
        '[storage."s3://"]\nregion = "all"\nmax_retries = 1\n'
        '[storage."s3://lake"]\nregion = "bucket"\nallow_http = true\n'
        '[storage."s3://lake/raw/"]\nregion = "raw"\n'
    )

    assert options("s3://lake/raw/2020")["region"] == "raw"
    assert options("s3://lake/raw2")["region"] == "bucket"
    assert options("S3A://lake")["region"] == "bucket"
    assert options("s3://lakehouse") == {"region": "all", "max_retries": "1"}
    assert options("s3://lake") == {"region": "bucket", "max_retries": "1", "allow_http": "true"}
    assert options("gs://lake") == {}


def test_variable_may_have_sections_as_the_file_has(variable: Any) -> None:
    variable(json.dumps({"s3://lake": {"region": "one"}, "gs://": {"base_url": "http://g"}}))

    assert options("s3://lake/a") == {"region": "one"}
    assert options("gs://lake") == {"base_url": "http://g"}
    assert options("s3://other") == {}


def test_variable_may_be_flat_json_or_pairs(variable: Any) -> None:
    variable('{"endpoint": "http://minio:9000", "allow_http": true, "max_retries": 2}')
    as_json = options()
    variable(" endpoint=http://minio:9000 , allow_http=true,max_retries=2,")

    assert as_json == options()
    assert as_json["allow_http"] == "true"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"endpoint": "http://call"}, {"endpoint": "http://call"}),
        ({"AWS_ENDPOINT_URL": "http://call"}, {"AWS_ENDPOINT_URL": "http://call"}),
        ({"aws_default_region": "call"}, {"aws_default_region": "call", "endpoint": "http://f"}),
    ],
)
def test_setting_of_a_call_is_known_by_each_of_its_names(
    config: Path, given: dict[str, str], kept: dict[str, str]
) -> None:
    config.write_text('[storage."s3://lake"]\nendpoint = "http://f"\nregion = "f"\n')
    has_region = "aws_default_region" in given

    assert options(**given) == {**kept, **({} if has_region else {"region": "f"})}


def test_credentials_are_of_one_place_only(config: Path, variable: Any) -> None:
    config.write_text('[storage."s3://lake"]\nsession_token = "file"\nregion = "file"\n')
    variable("access_key_id=variable,secret_access_key=variable")

    assert options() == {
        "access_key_id": "variable",
        "secret_access_key": "variable",
        "region": "file",
    }
    assert options(profile="mine") == {"profile": "mine", "region": "file"}
    assert options(skip_signature="true") == {"skip_signature": "true", "region": "file"}


def test_names_of_another_service_are_left_to_it(variable: Any) -> None:
    variable("aws_region=here,azure_storage_account_name=acc,google_bearer_token=t")

    assert options("s3://lake") == {"aws_region": "here"}
    assert options("az://lake") == {"azure_storage_account_name": "acc"}
    assert options("gs://lake") == {"google_bearer_token": "t"}


# Where it holds


def test_directories_and_memory_take_nothing_from_there(
    config: Path, variable: Any, tmp_path: Path
) -> None:
    config.write_text("neither read nor understood")
    variable("{neither")

    open_store(tmp_path).put("a", b"x")
    open_store(tmp_path.as_uri()).put("a", b"x")
    open_store("memory://configured").put("a", b"x")

    assert options(str(tmp_path), durable="false") == {"durable": "false"}
    with pytest.raises(InvalidInputError, match="LAKEBED_STORAGE_OPTIONS"):
        open_store("s3://lake")


def test_repository_is_opened_without_an_option(
    config: Path, s3_options: dict[str, str], tmp_path: Path
) -> None:
    section = "\n".join(f"{name} = {json.dumps(value)}" for name, value in s3_options.items())
    config.write_text(f'[storage."s3://lake"]\n{section}\n')

    store = lakebed.open_repository(f"s3://lake/{tmp_path.name}").store

    store.put("a", b"x")
    assert store.get("a").data == b"x"


def test_raw_files_carry_what_led_to_them_to_whoever_reads_them(
    variable: Any, s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://lake/{tmp_path.name}"
    open_store(place, storage_options=s3_options).put("a.jsonl", b'{"n": 1}')
    variable(json.dumps(s3_options))

    _, (file,) = find_files(f"{place}/a.jsonl")
    monkeypatch.delenv("LAKEBED_STORAGE_OPTIONS")  # as where a task runs

    with file.open() as source:
        assert source.read() == b'{"n": 1}'


@pytest.mark.parametrize("folder", ["XDG_CONFIG_HOME", "HOME"])
def test_file_of_the_user_is_found_without_being_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEBED_CONFIG")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv(folder, str(tmp_path))
    path = tmp_path / ("lakebed" if folder == "XDG_CONFIG_HOME" else ".config/lakebed")
    assert options() == {}
    path.mkdir(parents=True)
    (path / "config.toml").write_text('[storage."s3://lake"]\nregion = "mine"\n')

    assert options() == {"region": "mine"}


# What cannot be used


@pytest.mark.parametrize(
    "text",
    [
        f"secret_access_key={SECRET},{SECRET}",
        f"={SECRET}",
        f"region=a,secret_access_key:{SECRET}==",
        SECRET,
        f'{{"secret_access_key": "{SECRET}',
        f'{{"secret_access_key": ["{SECRET}"]}}',
        f'{{"lake": {{"secret_access_key": "{SECRET}"}}}}',
        f'{{"s3://KEY:{SECRET}@lake": {{"region": "a"}}}}',
        '{"file:///data": {"durable": "false"}}',
    ],
)
def test_variable_that_cannot_be_read_is_refused_without_its_values(
    variable: Any, text: str
) -> None:
    variable(text)

    with pytest.raises(InvalidInputError) as caught:
        open_store("s3://lake")

    assert caught.value.hint
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__dict__}"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'[storage."s3://lake"]\nsecret_access_key = {SECRET}', "line 2"),
        (f'[storage."s3://lake"]\nsecret_access_key = ["{SECRET}"]', "secret_access_key"),
        ('[storage.lake]\nregion = "a"', "'lake'"),
        ('[storage."file:///data"]\ndurable = "false"', "file:///data"),
        ('["s3://lake"]\nregion = "a"', "s3://lake"),
        ('storage = "s3://lake"', "storage"),
        ('[storage]\nregion = "a"', "region"),
    ],
)
def test_file_that_cannot_be_read_is_refused_without_its_values(
    config: Path, text: str, shown: str
) -> None:
    config.write_text(text)

    with pytest.raises(InvalidInputError, match=shown) as caught:
        open_store("s3://lake")

    assert str(config) in str(caught.value)
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__dict__}"


def test_file_that_is_named_and_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEBED_CONFIG", str(tmp_path / "none.toml"))

    with pytest.raises(InvalidInputError, match=r"none\.toml"):
        open_store("s3://lake")


def test_file_that_is_named_in_a_home_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKEBED_CONFIG", "~nobody-of-this-name/lakebed.toml")

    with pytest.raises(InvalidInputError, match="LAKEBED_CONFIG is '~nobody-of-this-name/"):
        open_store("s3://lake")


@pytest.mark.parametrize("url", ["s3://lake", "gs://lake", "hdfs://name/lake"])
@pytest.mark.parametrize("home", ["closed", "~nobody-of-this-name"])
def test_user_who_may_not_look_into_the_home_or_has_none_opens_stores(
    url: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by sudo, which keeps HOME, or in a container whose user nobody has described."""
    for variable in ("LAKEBED_CONFIG", "XDG_CONFIG_HOME", "CLOUDSDK_CONFIG", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(variable, raising=False)
    open_store(url)  # what is imported for it may lie where only this user may look
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    monkeypatch.setenv("HOME", str(closed) if home == "closed" else home)

    with as_user_of_no_rights():
        assert open_store(url).uri == url


def test_unknown_option_says_where_it_comes_from_and_what_was_meant(variable: Any) -> None:
    variable("regoin=eu-west-1")

    with pytest.raises(InvalidInputError, match="'regoin'") as caught:
        open_store("s3://lake", storage_options={"endpoint": "http://minio"})

    assert "Did you mean 'region'?" in caught.value.hint
    assert caught.value.__notes__ == [
        "Storage options not given by the call: regoin from LAKEBED_STORAGE_OPTIONS."
    ]


def test_display_shows_no_secret(variable: Any) -> None:
    variable(f"access_key_id=me,secret_access_key={SECRET}")

    configured = configured_options("s3://lake", {})

    assert configured.options["secret_access_key"] == SECRET
    assert SECRET not in repr(configured)
    assert SECRET not in repr(open_store("s3://lake"))


@pytest.mark.parametrize("name", ["s3:/lake", "s3:", "lake"])
def test_section_that_is_no_url_is_refused_and_not_passed_over(variable: Any, name: str) -> None:
    variable(json.dumps({name: {"region": "eu-west-1"}}))

    with pytest.raises(InvalidInputError, match="is not a section for a store"):
        options()

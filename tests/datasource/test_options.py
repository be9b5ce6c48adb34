"""Options of the data source: any case, each once, and none that nobody knows."""

import datetime as dt
from typing import Any

import pytest

from lakebed.datasource.options import (
    STREAM_READS,
    CreationOptions,
    OptionTexts,
    ReadOptions,
    SaveOptions,
)
from lakebed.datasource.stream_options import StreamReadOptions, StreamWriteOptions
from lakebed.errors import InvalidInputError

PATH = {"path": "/lake/flights"}


def test_names_are_of_any_case_and_values_are_typed() -> None:
    options = ReadOptions.parse(
        {
            "PATH": "s3://bucket/lake/flights",
            "splitbytes": "1000",
            "COLUMNS": "a, b",
            "Where": "a > 1",
        }
    )

    assert (options.address.location, options.address.name) == ("s3://bucket/lake", "flights")
    assert options.split_bytes == 1000
    assert options.columns == ("a", "b")
    assert options.where == "a > 1"


@pytest.mark.parametrize("name", ["version", "versionAsOf", "VERSIONASOF"])
def test_version_is_called_as_elsewhere_too(name: str) -> None:
    assert ReadOptions.parse(PATH | {name: "3"}).version == 3


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2013-06-01T12:00:00Z", 12),
        ("2013-06-01 12:00:00+02:00", 10),
        ("2013-06-01", 0),
        ("20130601", 0),
    ],
)
def test_time_without_zone_is_utc(text: str, hour: int) -> None:
    options = ReadOptions.parse(PATH | {"timestamp": text})

    assert options.time == dt.datetime(2013, 6, 1, hour, tzinfo=dt.UTC)


@pytest.mark.parametrize("option", [{"unknown": "keep"}, {"types": "widen"}])
def test_streaming_writes_refuse_to_change_the_schema(option: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=f"option {next(iter(option))} is for batch writes"):
        StreamWriteOptions.parse(PATH | option)


@pytest.mark.parametrize("parse", [ReadOptions.parse, StreamReadOptions.parse])
def test_times_under_names_of_other_formats_need_a_zone(parse: Any) -> None:
    name = "timestampAsOf" if parse == ReadOptions.parse else "startingTimestamp"
    for text in ("2013-06-01", "2013-06-01 12:00:00", "20130601", "201306011200", "1 June 2013"):
        for spelling in (name, name.lower()):
            with pytest.raises(
                InvalidInputError, match=f"{name} is '{text}'.* zone of the session"
            ):
                parse(PATH | {spelling: text})
    for text in ("2013-06-01T12:00Z", "2013-06-01 14:00:00+02:00", "20130601T1200Z", "1370088000"):
        options = parse(PATH | {name: text})
        time = options.time if isinstance(options, ReadOptions) else options.starting_time
        assert time == dt.datetime(2013, 6, 1, 12, tzinfo=dt.UTC)


def test_columns_may_be_a_json_list() -> None:
    assert ReadOptions.parse(PATH | {"columns": '["a", "b"]'}).columns == ("a", "b")


def test_settings_of_the_store_pass_through_and_are_not_shown() -> None:
    options = ReadOptions.parse(
        PATH | {"storage.region": "eu", "storage.secret_access_key": "wJalrX"}
    )

    assert options.storage == {"region": "eu", "secret_access_key": "wJalrX"}
    assert "wJalrX" not in repr(options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"versionof": "3"}, "no option 'versionof' here. Did you mean 'versionAsOf'?"),
        ({"partitionBy": "a"}, "no option 'partitionBy' here. Known are: batchId, columns,"),
        ({"version": "3", "versionAsOf": "3"}, "'version' and 'versionAsOf' have the same meaning"),
        ({"version": "3", "batchId": "7"}, "version and batchId each select a version"),
        ({"version": "-1"}, "Option version is '-1'. Give a whole number, 0 or more."),
        ({"version": "last"}, "Option version is 'last'."),
        (
            {"timestamp": "yesterday"},
            "Option timestamp: 'yesterday' is not a time. Write it as 2015-03-20T12:30:00Z",
        ),
        ({"columns": "a,,b"}, "Option columns is 'a,,b'."),
        ({"columns": "[1]"}, "Option columns is"),
        ({"splitBytes": "0"}, "Option splitBytes is '0', which is not a size."),
        ({"path": "repo:/lake"}, "does not name a dataset"),
        (
            {"path": "dataset:/lake/flights?@version=3", "version": "4"},
            "each select a version to read",
        ),
    ],
)
def test_read_that_cannot_be_meant_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        ReadOptions.parse(PATH | given)

    assert message in str(refused.value)


def test_path_is_asked_for() -> None:
    with pytest.raises(InvalidInputError, match=r"No dataset is named\. Give its path"):
        ReadOptions.parse({})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"overwriteMode": "partition"}, "Did you mean 'partitions'?"),
        ({"overwriteMode": "all", "partitionOverwriteMode": "static"}, "Both overwriteMode and"),
        ({"partitionOverwriteMode": "dynamic", "replaceWhere": "a = 1"}, "Both replaceWhere and"),
        ({"partitionOverwriteMode": "on"}, "Give one of static, dynamic."),
        ({"overwriteMode": "dynamic"}, "Give one of all, partitions, run, run-partitions."),
        ({"overwriteMode": "run"}, "no run is named"),
        ({"run": "2026-11-01", "replaceAll": "true"}, "replaceAll is given"),
        ({"overwriteMode": "run-partitions"}, "no run is named"),
        ({"overwriteMode": "all", "replaceWhere": "a = 1"}, "Both replaceWhere and overwriteMode"),
        ({"staged": "maybe"}, "Option staged is 'maybe'. Give true or false."),
        ({"base": "1", "expectedVersion": "1"}, "have the same meaning"),
        ({"path": "view:/lake/flights?a=1"}, "needs a whole dataset"),
        ({"path": "dataset:/lake/flights?@version=3"}, "needs a whole dataset"),
        ({"columns": "a"}, "no option 'columns' here"),
    ],
)
def test_write_that_cannot_be_meant_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        SaveOptions.parse(PATH | given)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("given", "creation"),
    [
        ({}, None),
        ({"create": "true"}, CreationOptions()),
        ({"partitionBy": "date(at) as dt"}, CreationOptions(partition_by="date(at) as dt")),
        ({"index": "a, b"}, CreationOptions(index=("a", "b"))),
        ({"partitionBy": ""}, CreationOptions(partition_by="")),
        ({"partitionBy": "a", "create": "false"}, None),
    ],
)
def test_dataset_is_created_only_where_an_option_says_so(
    given: dict[str, str], creation: CreationOptions | None
) -> None:
    assert SaveOptions.parse(PATH | given).creation == creation


def test_option_is_taken_once_and_what_is_left_is_named() -> None:
    texts = OptionTexts({"Trigger": "x", "other": "y"})

    assert texts.text("trigger") == "x"
    with pytest.raises(InvalidInputError, match="no option 'other'"):
        texts.refuse_others(STREAM_READS)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (ReadOptions, "changecolumns", "option changeColumns is for streaming reads only"),
        (ReadOptions, "onchange", "option onChange is for streaming reads only"),
        (StreamReadOptions, "versionasof", "option versionAsOf is for batch reads only"),
        (SaveOptions, "compactevery", "option compactEvery is for streaming writes only"),
        (StreamWriteOptions, "replacewhere", "option replaceWhere is for batch writes only"),
    ],
)
def test_option_of_another_call_is_named_as_documented_with_that_call(
    options: Any, given: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        options.parse(PATH | {given: "true"})

    assert "Use " in str(caught.value.hint)

"""The declaration of a pipeline: its mistakes, all at once and by line, and the schema for editors."""

from __future__ import annotations

import copy
import datetime as dt
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import lakebed
from lakebed import Pipeline, checks
from lakebed.errors import FormatError, InvalidInputError, LakebedError, NotFoundError
from lakebed.pipeline.declaration import SCHEMA_FILE, schema_of_pipelines, schema_text
from lakebed.pipeline.toml_lines import find_line, lines_of

AVSC = {
    "type": "record",
    "name": "sale",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "long"},
    ],
}
WHOLE = """max_age = "26h"
name = "sales"

[source]
paths = ["in/*.csv"]
format = "csv"
may_be_empty = true
csv.delimiter = ";"

[dataset]
into = "lake/sales"
schema = "sale.avsc"
partition_by = "day"
properties.owner = "ops"

[checks]
sane = "amount >= 0"
ids = { unique = ["day", "shop"], of = "batch" }
named = { not_null = ["shop"], on_failure = "quarantine" }
volume = { row_count_within = 0.5, of_last = 3 }
recent = { column = "day", within = "2d", on_failure = "warn" }
some = { min_rows = 1, max_rows = 9 }
shops = { reference = "shop -> shops.name" }

[ingest]
unknown = "keep"
max_rejects = 0.1
quarantine = "unfit"

[layout]
target_size = "64MB"
min_files = 4
sort_by = "shop"

[publish]
delta = true
iceberg = { catalog = "prod", table = "web.sales" }
hive = "lake.sales"
metastore = "warehouse"
require_checks = true

[retention]
keep = "400d"
delete_where = "shop = 'test'"

[cleanup]
older_than = "30d"
published = "noted"
"""
OF_ARCHIVE = """
[source]
storage = "raw"
what = "sales"
where = "north"
format = "json"
[dataset]
into = "lake/sales"
[ingest]
start = "-7d"
supersede = "path"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "sale.avsc").write_text(json.dumps(AVSC))
    return tmp_path


def read(place: Path, text: str) -> Pipeline:
    (place / "sales.toml").write_text(text)
    return Pipeline.from_toml(place / "sales.toml")


def mistakes(place: Path, text: str) -> list[str]:
    """Return the mistakes of a declaration, without the name of the file."""
    with pytest.raises(LakebedError) as caught:
        read(place, text)
    first, *others = caught.value.message.replace(f"{place}/", "").splitlines()
    if not others:
        return [first.removeprefix("sales.toml, ")]
    assert first == f"sales.toml has {len(others)} mistakes:"
    return [line.removeprefix("- ") for line in others]


def test_a_file_declares_the_same_as_python(place: Path) -> None:
    declared = read(place, WHOLE)
    declared_checks = {
        "sane": checks.condition("amount >= 0"),
        "ids": checks.unique("day", "shop", of="batch"),
        "named": checks.not_null("shop", on_failure="quarantine"),
        "volume": checks.row_count_within(0.5, of_last=3),
        "recent": checks.fresh("day", within="2d", on_failure="warn"),
        "some": checks.row_count(min=1, max=9),
        "shops": checks.reference("shop", "shops.name"),
    }

    assert declared == Pipeline(
        ingest=lakebed.Ingest(
            name="sales",
            into=f"{place}/lake/sales",
            source=lakebed.FromFiles(paths=[f"{place}/in/*.csv"], may_be_empty=True),
            format="csv",
            create=lakebed.DatasetDescriptor(
                schema=AVSC,
                partition_by="day",
                properties={"owner": "ops", "publish.require_checks": "true"},
                checks=declared_checks,
            ),
            unknown="keep",
            max_rejects=0.1,
            quarantine="unfit",
            csv=lakebed.CsvOptions(delimiter=";"),
        ),
        layout=lakebed.LayoutRule(target_bytes=64 * 2**20, min_files=4, sort_by=("shop",)),
        publish=lakebed.PublishRule(
            delta=True,
            iceberg={"catalog": "prod", "table": "web.sales"},
            hive="lake.sales",
            metastore=f"{place}/warehouse",
            require_checks=True,
        ),
        retention=lakebed.RetentionRule(keep="400d", delete_where="shop = 'test'"),
        cleanup=lakebed.CleanupRule(older_than="30d", published="noted"),
        checks=declared_checks,
        max_age="26h",
    )
    assert declared.file == f"{place}/sales.toml"
    assert declared.steps == ("checks", "ingest", "retain", "compact", "publish", "cleanup")


def test_a_pipeline_may_have_an_ingest_alone(place: Path) -> None:
    declared = read(place, '[source]\npaths = "in"\n[dataset]\ninto = "lake/sales"\n')

    assert (declared.name, declared.steps) == ("sales", ("ingest",))


def test_an_age_that_every_run_would_exceed_is_refused(place: Path) -> None:
    text = '[source]\npaths = "in"\n[dataset]\ninto = "lake/sales"\n'

    assert mistakes(place, f'max_age = "0s"\n{text}') == ["line 1, max_age: the age is 0."]
    assert (
        "line 1, max_age: '3 moons' is not a valid age"
        in mistakes(place, f'max_age = "3 moons"\n{text}')[0]
    )
    with pytest.raises(InvalidInputError, match="max_age is 0"):
        Pipeline(ingest=read(place, text).ingest, max_age="0s")


def test_an_empty_table_stands_for_its_defaults(place: Path) -> None:
    text = '[layout]\n[cleanup]\n[source]\npaths = "in"\n[dataset]\ninto = "lake/sales"\n'

    declared = read(place, text)

    assert declared.layout == lakebed.LayoutRule()
    assert declared.cleanup == lakebed.CleanupRule()


def test_a_window_begins_before_each_run(place: Path) -> None:
    declared = read(place, OF_ARCHIVE)
    archive = lakebed.open_archive(place / "raw")
    file = place / "one.jsonl"
    file.write_text('{"day": "2026-01-01", "shop": "a", "amount": 1}\n')
    now = dt.datetime.now(dt.UTC)
    for days in (30, 3):
        archive.push(file, where="north", what="sales", start=now - dt.timedelta(days=days))
    lakebed.open_repository(place / "lake").create("sales", lakebed.DatasetDescriptor(schema=AVSC))

    assert len(declared.ingest.check().new) == 1
    text = OF_ARCHIVE.replace("-7d", "-40d")
    assert len(read(place, text).ingest.check().new) == 2


def test_all_mistakes_are_reported_at_once_with_their_lines(place: Path) -> None:
    text = """
nam = "sales"
[source]
pths = "in"
format = "cvs"
[dataset]
into = "lake/sa les"
schema = "nothing.avsc"
[layout]
target_size = "big"
min_files = 1
gather = "yes"
[publish]
iceberg = { catalog = "prod" }
hive = { mode = "partitions" }
[retention]
keep = "400"
delete_where = ""
[cleanup]
older_than = 7
[extra]
[checks]
sane = { rows = "amount >= 0", on_failure = "quarentine" }
ids = { unqiue = ["id"] }
"a b" = "amount >= 0"
[checks.late]
within = "2h"
[checks.many]
unique = "shop"
on_failure = "reject"
"""

    found = mistakes(place, text)

    assert [one.partition(": ")[0] for one in found] == [
        "line 2, nam",
        "line 4, [source] pths",
        "line 5, [source] format",
        "line 7, [dataset] into",
        "line 8, [dataset] schema",
        "line 10, [layout] target_size",
        "line 11, [layout] min_files",
        "line 12, [layout] gather",
        "line 14, [publish.iceberg]",
        "line 15, [publish.hive]",
        "line 17, [retention] keep",
        "line 18, [retention] delete_where",
        "line 20, [cleanup] older_than",
        "line 21, extra",
        "line 23, [checks] sane",
        "line 24, [checks] ids",
        "line 25, [checks] a b",
        "line 26, [checks] late",
        "line 28, [checks] many",
    ]
    assert "Did you mean 'name'?" in found[0]
    assert "Did you mean 'csv'?" in found[2]


def test_rules_are_checked_against_the_declared_dataset(place: Path) -> None:
    text = WHOLE.replace('sort_by = "shop"', 'sort_by = "shp"')
    text = text.replace("shop = 'test'", "shp = 'test'").replace('"amount >= 0"', '"amnt >= 0"')

    found = mistakes(place, text)

    assert [one.partition(":")[0] for one in found] == [
        "line 17, [checks] sane",
        "line 33, [layout] sort_by",
        "line 44, [retention] delete_where",
    ]
    assert "amnt" in found[0]
    assert all("shp" in one for one in found[1:])


def test_rules_may_name_a_field_that_the_dataset_has_gained(place: Path) -> None:
    text = WHOLE.replace("shop = 'test'", "note = 'test'")
    fields = [*AVSC["fields"], {"name": "note", "type": ["null", "string"]}]
    lakebed.open_repository(place / "lake").create(
        "sales", lakebed.DatasetDescriptor(schema={**AVSC, "fields": fields}, partition_by="day")
    )

    assert read(place, text).retention is not None
    (found,) = mistakes(place, text.replace("note =", "nte ="))
    assert found.startswith("line 44, [retention] delete_where: ")
    assert "Did you mean 'note'?" in found or "nte" in found


@pytest.mark.parametrize(
    ("partition_by", "retention", "said"),
    [
        ("shop", 'keep = "30d"', "have no time to keep by"),
        ("day", 'keep = "30d"\nby = "amount"', "'amount' is a long, which is not a time"),
        ("day", 'keep = "30d"\nby = "dy"', "no field 'dy'"),
        ("day", 'by = "day"', "neither keep nor delete_where"),
        ("day", 'by = "day"\ndelete_where = "amount < 0"', "but no keep"),
        ("day", "", "neither keep nor delete_where"),
        ("day", 'keep = "0d"', "would delete everything"),
        ("day", 'delete_where = "amount <"', "Cannot read the predicate"),
    ],
)
def test_a_retention_that_cannot_be_kept_is_refused(
    place: Path, partition_by: str, retention: str, said: str
) -> None:
    text = WHOLE.replace('partition_by = "day"', f'partition_by = "{partition_by}"')
    text = text.replace('keep = "400d"\ndelete_where = "shop = \'test\'"', retention)

    (found,) = mistakes(place, text)

    assert said in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("into = 'lake/x'", "[dataset] into"),
        ("format = 'csv'", "[source] format"),
        ("[archive]", "[source] storage and what"),
        ("[files]", "[source] paths"),
        ("[create]", "[dataset]"),
        ("[csv]", "[source.csv]"),
        ("unknown = 'keep'", "[ingest] unknown"),
        ("max_rejects = 1", "[ingest] max_rejects"),
        ("quarantine = 'x'", "[ingest] quarantine"),
        ("allow_truncated = true", "[ingest] allow_truncated"),
        ("storage_options = {}", "[dataset] storage_options"),
        ("provided = {}", "[ingest] provided"),
    ],
)
def test_a_former_key_is_refused_with_its_present_place(place: Path, old: str, new: str) -> None:
    text = f"{old}\n[source]\npaths = 'in'\n[dataset]\ninto = 'lake/x'\n"

    (found,) = mistakes(place, text)

    assert found.startswith("line 1, ")
    with pytest.raises(InvalidInputError) as caught:
        read(place, text)
    assert f"Write {new}" in caught.value.hint


def test_an_ingest_is_read_from_the_same_file(place: Path) -> None:
    pipeline = read(place, WHOLE)

    assert lakebed.Ingest.from_toml(place / "sales.toml") == pipeline.ingest


def test_a_missing_file_and_broken_toml_are_named(place: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.toml"):
        Pipeline.from_toml(place / "none.toml")
    with pytest.raises(FormatError, match="line 2"):
        read(place, "name = 'x'\nsource = }\n")


def test_credentials_in_an_address_are_refused_and_not_shown(place: Path) -> None:
    text = WHOLE.replace("lake/sales", "s3://key:secret@bucket/lake/sales")

    found = mistakes(place, text)

    assert "secret" not in "".join(found)


# The schema for editors.


def test_the_shipped_schema_is_that_of_the_reader() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        'rewrite it: python -c "from lakebed.pipeline.declaration import *; '
        'SCHEMA_FILE.write_text(schema_text())"'
    )
    jsonschema.Draft202012Validator.check_schema(schema_of_pipelines())


def plain(node: Any) -> Any:
    """Return a document as an editor sees it: times are texts."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(item) for item in node]
    return str(node) if isinstance(node, dt.date) else node


def changed(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return documents with one change each: a key is misspelt, missing, or of another type."""
    found: list[tuple[str, dict[str, Any]]] = []

    def at(path: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        copied = copy.deepcopy(document)
        table = copied
        for name in path:
            table = table[name]
        return copied, table

    def walk(node: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, value in node.items():
            label = ".".join((*path, key))
            copied, table = at(path)
            del table[key]
            found.append((f"without {label}", copied))
            if path != ("dataset", "properties"):
                copied, table = at(path)
                table[f"{key}x"] = table.pop(key)
                found.append((f"misspelt {label}", copied))
            for wrong in (17, 1.5, "some text", True, {"a": 1}, [1], ["a"]):
                copied, table = at(path)
                table[key] = wrong
                found.append((f"{label} = {wrong!r}", copied))
            if isinstance(value, dict):
                walk(value, (*path, key))

    walk(document, ())
    return found


def to_toml(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {_inline(value)}\n" for key, value in table.items()) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, dt.date):
        return value.isoformat()
    return json.dumps(value)


# Refused by the reader alone: other values, other files or the dataset decide.
BEYOND_A_SCHEMA = {
    WHOLE: {
        *("without source.paths", "source.csv.delimiter = 'some text'"),
        *("dataset.into = 'some text'", "without dataset.schema", "dataset.schema = 'some text'"),
        *("dataset.schema = {'a': 1}", "without dataset.partition_by"),
        *("dataset.partition_by = 'some text'", "dataset.partition_by = ['a']"),
        *("ingest.max_rejects = 1.5", "ingest.quarantine = 'some text'"),
        *("layout.sort_by = 'some text'", "layout.sort_by = ['a']"),
        *("without publish.iceberg.catalog", "without publish.iceberg.table"),
        *(f"checks.{name} = 'some text'" for name in ("sane", "ids", "named", "volume")),
        *(f"checks.{name} = 'some text'" for name in ("recent", "some", "shops")),
        *("checks.ids.unique = 'some text'", "checks.ids.unique = ['a']"),
        *("checks.named.not_null = 'some text'", "checks.named.not_null = ['a']"),
        "checks.recent.column = 'some text'",
        *("publish.hive = 'some text'", "retention.delete_where = 'some text'"),
    },
    OF_ARCHIVE: {
        *("without source.storage", "without source.what", "without source.format"),
        *("dataset.into = 'some text'", "without ingest", "without ingest.start"),
        *("ingest.start = 17", "ingest.start = 'some text'"),
    },
}


@pytest.mark.parametrize("text", BEYOND_A_SCHEMA, ids=["files", "archive"])
def test_reader_and_schema_refuse_the_same(place: Path, text: str) -> None:
    document = tomllib.loads(text)
    validator = jsonschema.Draft202012Validator(schema_of_pipelines())
    assert validator.is_valid(plain(document))
    read(place, text)
    refused = dict.fromkeys(("both", "reader"), 0)

    for label, one in changed(document):
        is_valid = validator.is_valid(plain(one))
        if is_valid and label not in BEYOND_A_SCHEMA[text]:
            read(place, to_toml(one))
            continue
        refused["reader" if is_valid else "both"] += 1
        with pytest.raises(LakebedError):
            read(place, to_toml(one))

    assert refused["both"] > 30
    assert refused["reader"] == len(BEYOND_A_SCHEMA[text])


# Lines.


def test_lines_are_found_whatever_values_look_like() -> None:
    text = '''# [comment]
name = "a" # [no]

[source]
paths = ["in/*.csv", # "
  "x"]
csv.delimiter = ";"
note = """
[not.a.table]
a = 1"""
"quoted key" = 'x'
[publish."b.c"]
hive = {table = "x", list = [1,
  2]}
last = "\\"["
'''
    lines = lines_of(text)

    assert lines[("name",)] == 2
    assert lines[("source", "paths")] == 5
    assert lines[("source", "csv", "delimiter")] == 7
    assert lines[("source", "quoted key")] == 11
    assert lines[("publish", "b.c", "hive")] == 13
    assert lines[("publish", "b.c", "last")] == 15
    assert ("not",) not in lines
    assert find_line(lines, ("publish", "b.c", "hive", "table")) == 13
    assert find_line(lines, ("nothing",)) is None
    assert tomllib.loads(text)["publish"]["b.c"]["last"] == '"['

"""Dimensions, telemetry trees and datasets of Kite on the command line."""

import json
from pathlib import Path

import pytest
from kite_trees import bucket, write_kite

import lakebed

SCHEMA = {
    "type": "record",
    "name": "ping",
    "fields": [
        {"name": "uuid", "type": "string"},
        {"name": "document", "type": "string"},
        {
            "name": "application",
            "type": {
                "type": "record",
                "name": "application",
                "fields": [{"name": "name", "type": ["null", "string"]}],
            },
        },
        {"name": "channel", "type": ["null", "string"]},
    ],
}
DIMENSIONS = {
    "version": 1,
    "dimensions": [
        {"field_name": "application.name", "allowed_values": ["Firefox", "Fennec"]},
        {"field_name": "channel", "allowed_values": ["nightly"]},
    ],
}
LINES = "".join(
    f'u{number}\t{{"application": {{"name": "{name}"}}, "channel": "{channel}"}}\n'
    for number, (name, channel) in enumerate(
        [("Firefox", "nightly"), ("Fennec", "my-own"), ("Other", "nightly")]
    )
)


@pytest.fixture
def dimensions(tmp_path: Path) -> Path:
    path = tmp_path / "telemetry_schema.json"
    path.write_text(json.dumps(DIMENSIONS))
    return path


def test_dataset_is_created_by_a_dimension_schema_with_nested_fields(
    cli, tmp_path: Path, dimensions: Path
) -> None:
    schema = tmp_path / "ping.avsc"
    schema.write_text(json.dumps(SCHEMA))
    address = tmp_path / "lake" / "pings"

    cli(
        *("create", address, "--schema", schema, "--format", "submissions"),
        *("--partition-by", "hash(uuid, 2) as bucket", "--dimensions", dimensions),
    )

    pings = lakebed.open_repository(tmp_path / "lake").open("pings")
    assert [one.name for one in pings.descriptor.partition_by] == [
        "bucket",
        "application_name_dimension",
        "channel_dimension",
    ]


def test_import_makes_records_for_nested_dimensions(
    cli, tmp_path: Path, dimensions: Path, write
) -> None:
    address = tmp_path / "lake" / "pings"

    cli("import", address, write("pings.tsv", LINES), "--dimensions", dimensions)

    pings = lakebed.open_repository(tmp_path / "lake").open("pings")
    assert [one.path for one in pings.inspect.partitions()] == [
        "application_name_dimension=Fennec/channel_dimension=OTHER",
        "application_name_dimension=Firefox/channel_dimension=nightly",
        "application_name_dimension=OTHER/channel_dimension=nightly",
    ]
    assert pings.where("application.name = 'Other'").count() == 1


def test_dimension_of_no_field_is_refused_before_spark_starts(cli, tmp_path: Path, write) -> None:
    rule = {"field_name": "chanel", "allowed_values": "*"}
    wrong = write("wrong.json", json.dumps({"version": 1, "dimensions": [rule]}))
    broken = write("broken.json", json.dumps({"version": 1, "dimensions": [{}]}))
    rows = write("rows.csv", "channel\nbeta\n")
    schema = tmp_path / "ping.avsc"
    schema.write_text(json.dumps(SCHEMA))
    lake = tmp_path / "lake"

    for call in (
        ("import", lake / "a", rows, "--spark", "--dimensions", wrong),
        ("import", lake / "a", rows, "--spark", "--dimensions", broken),
        ("create", lake / "a", "--schema", schema, "--dimensions", wrong),
        ("create", lake / "a", "--schema", schema, "--dimensions", tmp_path / "none.json"),
    ):
        told = cli(*call, exit_code=None)
        assert told.exit_code in (2, 3)
        assert "Spark" not in told.stderr
    assert not lake.exists()


def test_tree_is_exported_and_adopted(cli, tmp_path: Path, dimensions: Path, write) -> None:
    address = tmp_path / "lake" / "pings"
    cli("import", address, write("pings.tsv", LINES), "--dimensions", dimensions)

    done = cli.json("export", address, tmp_path / "tree" / "pings", f"--telemetry={dimensions}")
    found = cli.json("adopt", tmp_path / "tree" / "pings", "--telemetry", dimensions, "--dry-run")
    cli("adopt", tmp_path / "tree" / "pings", "--telemetry", dimensions)

    assert done["files"] == [
        "Fennec/OTHER/001.gz",
        "Firefox/nightly/001.gz",
        "OTHER/nightly/001.gz",
    ]
    assert [one["row_count"] for one in found] == [1, 1, 1]
    rows = cli.json("query", tmp_path / "tree" / "pings", "--columns", "uuid,application_name")
    assert sorted((row["uuid"], row["application_name"]) for row in rows) == [
        ("u0", "Firefox"),
        ("u1", "Fennec"),
        ("u2", "OTHER"),
    ]


def test_export_of_a_view_by_the_datasets_own_partitions(
    cli, tmp_path: Path, dimensions: Path, write
) -> None:
    address = tmp_path / "lake" / "pings"
    cli("import", address, write("pings.tsv", LINES), "--dimensions", dimensions)

    done = cli.json(
        *("export", address, tmp_path / "tree", "--telemetry", "--where", "channel = 'nightly'"),
        *("--named", "2", "--compression", "xz", "--record-version", "4"),
    )

    assert done["row_count"] == 2
    assert all(".v4.log." in path and path.endswith(".xz") for path in done["files"])
    refused = cli("export", address, tmp_path / "tree", "--telemetry", exit_code=2)
    assert "has the levels" in refused.stderr


def test_tree_grows_by_later_exports_and_what_has_changed_is_named(
    cli, tmp_path: Path, dimensions: Path, write
) -> None:
    address, tree = tmp_path / "lake" / "pings", tmp_path / "tree"
    cli("import", address, write("pings.tsv", LINES), "--dimensions", dimensions)
    export = ("export", address, tree, "--telemetry")
    cli(*export)

    again = cli.json(*export)
    more = write("more.tsv", LINES.replace("u0", "v0").replace("u1", "v1").replace("u2", "v2"))
    cli("import", address, more)
    refused = cli(*export, exit_code=4)
    kept = cli(*export, "--if-changed", "keep")
    replaced = cli.json(*export, "--if-changed", "replace")

    assert (again["row_count"], again["files"], len(again["unchanged"])) == (0, [], 3)
    assert "3 directories" in refused.stderr
    assert "Firefox/nightly" in refused.stderr
    assert "--if-changed replace" in refused.stderr
    assert "3 directories have changed and were left" in kept.stderr
    assert (replaced["row_count"], len(replaced["replaced"])) == (6, 3)


def test_dataset_of_kite_is_adopted(cli, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "userId", "type": "long"}, {"name": "username", "type": "string"}],
    }
    write_kite(
        tmp_path / "users",
        [schema],
        'hash("userId", "userId_hash", 53)',
        [{"userId": 1234, "username": "jane"}, {"userId": 7, "username": "joe"}],
        lambda row: [("userId_hash", bucket(row["userId"], 53))],
    )

    cli("adopt", tmp_path / "users", "--kite")

    rows = cli.json("query", tmp_path / "users", "--where", "userId = 1234")
    told = cli("explain", tmp_path / "users", "--where", "userId = 1234").stdout
    assert rows == [{"userId": 1234, "username": "jane"}]
    assert "1 of 2" in told or "1 file" in told


def test_strategy_in_the_schema_is_taken_by_create(cli, tmp_path: Path, write) -> None:
    schema = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "userId", "type": "long"}, {"name": "username", "type": "string"}],
        "partitions": [{"type": "hash", "source": "userId", "buckets": 53}],
    }
    path = write("user.avsc", json.dumps(schema))

    cli("create", tmp_path / "lake" / "users", "--schema", path, "--format", "avro")
    cli("create", tmp_path / "lake" / "flat", "--schema", path, "--partition-by", "")

    repository = lakebed.open_repository(tmp_path / "lake")
    assert str(repository.open("users").descriptor.partition_by) == (
        "hash(userId, 53) as userId_hash"
    )
    assert not repository.open("flat").descriptor.is_partitioned


@pytest.mark.parametrize("compression", ["lz4", "xz"])
def test_export_that_spark_cannot_read_says_so_on_stderr(
    cli, tmp_path: Path, dimensions: Path, write, compression: str
) -> None:
    address = tmp_path / "lake" / "pings"
    cli("import", address, write("pings.tsv", LINES), "--dimensions", dimensions)

    call = ("export", address, tmp_path / "tree", f"--telemetry={dimensions}")
    told = cli(*call, "--compression", compression, "--dry-run")

    assert f".{compression}" in told.stderr
    assert "gzip or zstd" in told.stderr
    assert "Spark" not in cli(*call).stderr


@pytest.mark.parametrize("version", [{}, {"version": 1}])
def test_dimension_schema_alone_makes_a_dataset_of_submissions(
    cli, tmp_path: Path, write, version: dict[str, int]
) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"dimensions": DIMENSIONS["dimensions"], **version}))
    lake = tmp_path / "lake"

    cli("create", lake / "a", "--format", "submissions", "--dimensions", file)
    cli("append", lake / "a", write("pings.tsv", LINES))
    cli("ingest", tmp_path / "pings.tsv", "--into", lake / "b", "--format", "submissions",
        "--dimensions", file)  # fmt: skip
    cli("import", lake / "c", tmp_path / "pings.tsv", "--dimensions", file)

    made = [lakebed.open_repository(lake).open(name) for name in "abc"]
    assert made[0].descriptor == made[1].descriptor == made[2].descriptor
    fields = made[0].descriptor.schema.fields
    assert [(field.name, field.nullable) for field in fields] == [
        ("uuid", False), ("document", False), ("application", True), ("channel", True),
    ]  # fmt: skip
    for dataset in made:
        assert sorted(partition.path for partition in dataset.inspect.partitions()) == [
            "application_name_dimension=Fennec/channel_dimension=OTHER",
            "application_name_dimension=Firefox/channel_dimension=nightly",
            "application_name_dimension=OTHER/channel_dimension=nightly",
        ]


@pytest.mark.parametrize("options", [(), ("--format", "parquet"), ("--format", "submissions")])
def test_other_datasets_need_a_schema(cli, tmp_path: Path, dimensions: Path, options) -> None:
    more = () if "submissions" in options else ("--dimensions", dimensions)

    told = cli("create", tmp_path / "lake" / "a", *options, *more, exit_code=2)

    assert "--schema" in told.stderr
    assert not (tmp_path / "lake").exists()

"""What holds where two of the five documents meet."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import by
from lakebed.pipeline import FromArchive, Ingest

AT_ONCE = {"clock_skew": dt.timedelta(0), "dry_run": False}
CHANNELS = by.dimension("channel", ["nightly", "aurora"])
SCHEMA = pa.schema([("n", pa.int64()), ("channel", pa.string())])


def events(*rows: tuple[int, str]) -> io.BytesIO:
    lines = (json.dumps({"n": n, "channel": channel}) for n, channel in rows)
    return io.BytesIO("\n".join(lines).encode())


def test_archive_in_the_directory_of_a_lake_and_its_datasets_leave_each_other_alone(
    tmp_path: Path,
) -> None:
    archive = lakebed.open_archive(tmp_path / "lake")
    file = archive.push(
        events((1, "nightly")), path="/log/1.jsonl", where="web1", what="hits", start="2026-01-01"
    )
    repository = lakebed.open_repository(tmp_path / "lake")
    for name in ("kept", "dropped"):
        dataset = repository.create(name, lakebed.DatasetDescriptor(schema=SCHEMA))
        dataset.append([{"n": 1, "channel": "nightly"}])
        dataset.overwrite([{"n": 2, "channel": "nightly"}])
        dataset.cleanup("0s", **AT_ONCE)

    repository.drop("dropped")

    assert repository.list() == ["kept"]
    assert repository.open("kept").check(deep=True).problems == ()
    assert [one.id for one in archive.list("hits", start="2026-01-01", end="now")] == [file.id]
    with archive.open(file.url) as content:
        assert json.loads(content.read()) == {"n": 1, "channel": "nightly"}
    assert archive.reindex().indexed_count == 1


def test_dimensions_are_partition_keys_to_a_reader_of_kartotheks_head(tmp_path: Path) -> None:
    dataset = lakebed.open_repository(tmp_path).create(
        "pings", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[CHANNELS])
    )
    dataset.append([{"n": 1, "channel": "nightly"}, {"n": 2, "channel": "beta"}])

    head = json.loads((tmp_path / "pings.by-dataset-metadata.json").read_bytes())

    assert head["partition_keys"] == ["channel_dimension", "batch_id"]
    rows = {}
    for label, partition in head["partitions"].items():
        keys = dict(level.split("=") for level in label.split("/")[:-1])
        (file,) = partition["files"].values()
        rows[unquote(keys["channel_dimension"])] = (
            pq.ParquetFile(tmp_path / file).read().to_pylist()
        )
    assert rows == {
        "nightly": [{"n": 1, "channel": "nightly"}],
        "OTHER": [{"n": 2, "channel": "beta"}],
    }


def test_rerun_writes_a_batch_in_derived_partitions_that_are_found_by_their_source(
    tmp_path: Path,
) -> None:
    dataset = lakebed.open_repository(tmp_path).create(
        "users", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.hash("n", 53)])
    )
    first = dataset.append([{"n": 1234, "channel": "a"}, {"n": 1, "channel": "a"}], run="load")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}

    second = dataset.rerun([{"n": 1234, "channel": "b"}], run="load", replace_all=True)

    assert {path: path.read_bytes() for path in before} == before
    folder = tmp_path / "users/data/n_hash=15"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"batch_id={first.batch_id}",
        f"batch_id={second.batch_id}",
    ]
    found = dataset.where("n = 1234")
    assert found.arrow().to_pylist() == [{"n": 1234, "channel": "b"}]
    (file,) = found.plan().files
    assert f"batch_id={second.batch_id}/" in file.key
    assert dataset.count() == 1


def test_raw_files_fill_dimensions_and_a_file_that_is_resent_replaces_its_rows_of_other(
    tmp_path: Path,
) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    ingest = Ingest(
        name="pings",
        into=str(tmp_path / "lake/pings"),
        source=FromArchive(
            storage=str(tmp_path / "raw"),
            what="pings",
            start="2026-01-01",
            end="2026-01-31",
            supersede="path",
        ),
        format="json",
        create=lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[CHANNELS]),
    )

    def push(where: str, *rows: tuple[int, str]) -> None:
        archive.push(
            events(*rows), path=f"/log/{where}", where=where, what="pings", start="2026-01-01"
        )

    push("web1", (1, "nightly"), (2, "beta"))
    push("web2", (3, "esr"))
    ingest.run()
    push("web1", (1, "nightly"), (4, "OTHER"), (5, "aurora"))
    ingest.run()

    dataset = ingest.dataset()
    in_place = {
        (row["channel_dimension"], row["n"])
        for row in dataset.arrow(["channel_dimension", "n"]).to_pylist()
    }
    assert in_place == {("nightly", 1), ("OTHER", 3), ("OTHER", 4), ("aurora", 5)}
    assert dataset.count() == 4

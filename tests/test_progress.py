"""All verbs that take long tell how far they are, in one form; and a listener may end them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.arrow.reading import blocks
from lakebed.arrow.reading.inference import infer_schema

CHANNELS = lakebed.DatasetDescriptor(
    schema=pa.schema([("channel", pa.string()), ("n", pa.int64())]),
    partition_by=[by.dimension("channel", ["beta"])],
)
SUBMISSIONS = lakebed.DatasetDescriptor(
    schema=pa.schema(
        [
            pa.field("uuid", pa.string(), nullable=False),
            pa.field("document", pa.string(), nullable=False),
            ("channel", pa.string()),
        ]
    ),
    partition_by=[by.dimension("channel", ["beta"])],
    format="submissions",
)


@dataclass
class Lake:
    """A lake of a test's own, and raw files."""

    root: Path

    @property
    def repository(self) -> lakebed.Repository:
        return lakebed.open_repository(self.root / "lake")

    @property
    def channels(self) -> lakebed.Dataset:
        return self.repository.open("channels")

    @property
    def raw(self) -> list[Path]:
        return sorted((self.root / "raw").iterdir())

    def data(self) -> set[str]:
        return {info.key for info in self.repository.store.list("channels/data/")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    repository = lakebed.open_repository(root / "lake")
    channels = repository.create("channels", CHANNELS)
    for n in range(4):
        channels.append([{"channel": "esr", "n": n}, {"channel": "beta", "n": n}])
    documents = repository.create("documents", SUBMISSIONS)
    documents.append(
        [
            {"uuid": f"{n:032x}", "document": json.dumps({"channel": "beta"}), "channel": "beta"}
            for n in range(5)
        ]
    )
    (root / "raw").mkdir()
    for n in range(3):
        text = "channel,n\n" + f"beta,{n}\n" * 10
        (root / "raw" / f"{n}.csv").write_text(text, encoding="utf-8")
    plain = root / "lake" / "plain"
    shutil.copytree(root / "lake" / "channels" / "data", plain / "old")
    for path in plain.rglob("_*"):
        path.unlink()
    return root


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return Lake(tmp_path)


def ingest(lake: Lake) -> lakebed.Ingest:
    source = lakebed.FromFiles(paths=[str(path) for path in lake.raw])
    return lakebed.Ingest(name="raw", into=f"{lake.repository.uri}/channels", source=source)


def compacted(lake: Lake) -> lakebed.Dataset:
    lake.channels.compact()
    return lake.channels


def push(lake: Lake, tell: Callable[[lakebed.Progress], None]) -> None:
    archive = lakebed.open_archive(lake.root / "archive", index=f"sqlite:///{lake.root}/a.db")
    archive.push_many(lake.raw, where="here", what="csv", start="2013-01-01", on_progress=tell)


@dataclass(frozen=True)
class Verb:
    """What is done, and what is told of it in the end: what, how many of what, and rows."""

    do: Callable[[Lake, Callable[[lakebed.Progress], None]], object]
    what: str
    count: int
    unit: str = "file"
    rows: int | None = None
    has_bytes: bool = True


VERBS = {
    "load": Verb(
        lambda lake, tell: lake.channels.load([str(path) for path in lake.raw], on_progress=tell),
        "read files into channels",
        3,
        rows=30,
    ),
    "ingest": Verb(
        lambda lake, tell: ingest(lake).run(on_progress=tell),
        "read files into channels",
        3,
        rows=30,
    ),
    "compact": Verb(
        lambda lake, tell: lake.channels.compact(on_progress=tell), "compact channels", 8, rows=8
    ),
    "index": Verb(
        lambda lake, tell: lake.channels.indices.build("n", on_progress=tell),
        "index n of channels",
        8,
        rows=8,
    ),
    "promote": Verb(
        lambda lake, tell: lake.channels.dimensions.promote(
            {"channel": ["beta", "esr"]}, on_progress=tell
        ),
        "promote channels",
        8,  # each of the four is looked at, and then written anew
        rows=4,
    ),
    "reroute": Verb(
        lambda lake, tell: lake.channels.dimensions.promote(
            {"channel": ["esr"]}, reroute=True, on_progress=tell
        ),
        "reroute channels",
        16,  # each of the eight is looked at, and then written again
        rows=8,
    ),
    "check": Verb(
        lambda lake, tell: lake.channels.check(on_progress=tell),
        "list files of channels",
        8,
        has_bytes=False,
    ),
    "deep check": Verb(
        lambda lake, tell: lake.channels.check(deep=True, on_progress=tell),
        "compare files of channels",
        8,
    ),
    "publish to Delta": Verb(
        lambda lake, tell: lake.channels.publish("delta", on_progress=tell),
        "publish to Delta channels",
        8,
        has_bytes=False,
    ),
    "publish to Iceberg": Verb(
        lambda lake, tell: lake.channels.publish("iceberg", on_progress=tell),
        "publish to Iceberg ",
        8,
        has_bytes=False,
    ),
    "report": Verb(
        lambda lake, tell: lake.repository.report(lake.root / "lake.html", on_progress=tell),
        "report on ",
        2,
        unit="dataset",
        has_bytes=False,
    ),
    "push": Verb(push, "push csv", 3),
    "adopt": Verb(
        lambda lake, tell: lake.repository.adopt(
            "plain",
            f"{lake.root}/lake/plain/old",
            partition_by="channel_dimension",
            on_progress=tell,
        ),
        "adopt plain",
        8,
    ),
}


@pytest.mark.parametrize("name", VERBS)
def test_verb_tells_how_far_it_is_up_to_the_end(name: str, lake: Lake) -> None:
    verb, told = VERBS[name], list[lakebed.Progress]()

    verb.do(lake, told.append)

    assert all(progress.what.startswith(verb.what) for progress in told)
    assert {progress.unit for progress in told} == {verb.unit}
    counts = [progress.file_count for progress in told]
    assert counts == sorted(counts)
    assert counts[0] == 0
    last = told[-1]
    assert (last.file_count, last.file_total, last.row_count) == (verb.count, verb.count, verb.rows)
    assert (last.size_bytes == last.size_total_bytes > 0) is verb.has_bytes
    assert (last.share, last.left_s) == (1.0, 0.0)


@pytest.mark.parametrize("name", [name for name in VERBS if name != "push"])
def test_what_a_listener_raises_ends_the_verb_before_anything_is_visible(
    name: str, lake: Lake
) -> None:
    before = lake.channels.at(version=lake.channels.version)
    rows, data = before.arrow().sort_by("n"), lake.data()
    has_named_column = name == "index"  # writers index what they write from then on

    def stop(progress: lakebed.Progress) -> None:
        if progress.file_count or name.startswith("publish"):
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        VERBS[name].do(lake, stop)

    assert lake.channels.version == before.version + has_named_column
    assert lake.channels.arrow().sort_by("n") == rows
    assert lake.data() == data
    assert "plain" not in lake.repository.list()
    assert not (lake.root / "lake.html").exists()
    assert lake.channels.check(deep=True).is_ok


def test_cleanup_that_a_listener_ends_is_gone_on_with(lake: Lake) -> None:
    dataset, told = compacted(lake), list[lakebed.Progress]()

    def stop(progress: lakebed.Progress) -> None:
        raise RuntimeError("enough")

    def clean_up(tell: Callable[[lakebed.Progress], None]) -> lakebed.CleanupReport:
        return dataset.cleanup("0s", dry_run=False, clock_skew="0s", on_progress=tell)

    with pytest.raises(RuntimeError, match="enough"):
        clean_up(stop)
    report = clean_up(told.append)

    assert report.counts["superseded"] == 8
    assert told[-1].file_count == told[-1].file_total == len(report.files)
    assert (told[-1].what, told[-1].size_bytes) == (
        "delete dead files of channels",
        report.size_bytes,
    )
    assert dataset.check(deep=True).is_ok


def test_push_that_a_listener_ends_keeps_what_is_stored_and_says_so(lake: Lake) -> None:
    def stop(progress: lakebed.Progress) -> None:
        if progress.file_count == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        push(lake, stop)

    archive = lakebed.open_archive(lake.root / "archive", index=f"sqlite:///{lake.root}/a.db")
    stored = list(archive.list("csv", start="2013-01-01", end="2013-01-02"))
    assert len(stored) >= 2


def test_export_tells_of_rows(lake: Lake) -> None:
    told: list[lakebed.Progress] = []

    documents = lake.repository.open("documents")
    lake.repository.trees.export(documents, lake.root / "tree", on_progress=told.append)

    assert (told[-1].row_count, told[-1].file_total) == (5, 0)


def test_rows_of_a_large_file_are_told_before_its_end(lake: Lake) -> None:
    path, told = lake.root / "large.csv", list[lakebed.Progress]()
    path.write_text("channel,n\n" + "beta,1\n" * 3_500_000, encoding="utf-8")

    lake.channels.load(str(path), on_progress=told.append)

    within = [progress.row_count for progress in told if progress.file_count == 0]
    assert len(within) >= 3
    assert within[1:] == sorted(set(within[1:]))
    assert [(progress.file_count, progress.row_count) for progress in told][-1] == (1, 3_500_000)


def test_bytes_of_a_large_file_are_told_before_its_end(lake: Lake) -> None:
    path, told = lake.root / "large.csv", list[lakebed.Progress]()
    path.write_text("channel,n\n" + "beta,1\n" * 3_500_000, encoding="utf-8")

    lake.channels.load(str(path), on_progress=told.append)

    within = [progress.size_bytes for progress in told if progress.file_count == 0]
    assert 0 < within[1] < within[2] < path.stat().st_size
    assert told[-1].size_bytes == told[-1].size_total_bytes == path.stat().st_size


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_looking_at_files_for_their_types_is_told_by_bytes(
    tmp_path, suffix: str, monkeypatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**16)
    path, told = tmp_path / f"large.{suffix}", list[lakebed.Progress]()
    rows = "channel,n\n" + "beta,1\n" * 60_000 if suffix == "csv" else '{"n": 1}\n' * 60_000
    path.write_text(rows, encoding="utf-8")

    infer_schema(path, rows=0, on_progress=told.append)

    within = [progress.size_bytes for progress in told if progress.file_count == 0]
    assert within == sorted(set(within))
    assert len(within) >= 3
    assert (told[-1].file_count, told[-1].size_bytes) == (1, path.stat().st_size)

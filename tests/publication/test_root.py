"""What the tables of each format call the files of a repository, wherever that is.

No service is asked: a store that names its objects as one in the cloud does is a directory.
"""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.store import open_store
from lakebed.store.posix import PosixStore
from lakebed.store.root import key_at, root_of

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
KEYS = {"access_key_id": "a", "secret_access_key": "b"}
OURS = {"account_name": "ours", "skip_signature": "true"}
PLACES = [
    # opened as, with, what Hadoop's file systems call it, and what Iceberg's connectors do
    ("s3://lake/pre", KEYS, "s3a://lake/pre", "s3://lake/pre"),
    ("s3a://lake", KEYS, "s3a://lake", "s3://lake"),
    ("gs://lake/pre", {"skip_signature": "true"}, "gs://lake/pre", "gs://lake/pre"),
    (
        "az://lake/pre",
        OURS,
        "abfss://lake@ours.dfs.core.windows.net/pre",
        "abfss://lake@ours.dfs.core.windows.net/pre",
    ),
    ("hdfs://name:8020/lake", {}, "hdfs://name:8020/lake", "hdfs://name:8020/lake"),
    ("webhdfs://name:9870/lake", {}, "hdfs://name:8020/lake", "hdfs://name:8020/lake"),
]


@pytest.fixture(autouse=True)
def _files_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://name:8020</value>"
        "</property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))


class _Named(PosixStore):
    """A directory whose objects are called as those of another store are."""

    like = open_store("memory://nowhere")

    def _hadoop_uri(self, key: str) -> str | None:
        return self.like.hadoop_uri(key)


@pytest.fixture
def named(tmp_path: Path, request: pytest.FixtureRequest) -> lakebed.Dataset:
    url, options = request.param
    store = _Named(tmp_path / "lake", durable=False)
    store.like = open_store(url, storage_options=options)
    days = lakebed.Repository(store).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append([{"p": "a b%", "n": 1}])
    return days


@pytest.mark.parametrize(("url", "options", "hadoop", "iceberg"), PLACES)
def test_a_repository_has_the_name_that_the_readers_of_each_table_know(
    url: str, options: dict[str, str], hadoop: str, iceberg: str
) -> None:
    store = open_store(url, storage_options=options)

    assert root_of(store, None) == hadoop
    assert root_of(store, None, s3="s3") == iceberg
    assert root_of(store, "s3n://mine/") == "s3n://mine"


@pytest.mark.parametrize(("url", "options", "hadoop", "iceberg"), PLACES)
def test_a_location_of_a_metastore_is_found_by_every_name(
    url: str, options: dict[str, str], hadoop: str, iceberg: str
) -> None:
    store = open_store(url, storage_options=options)

    for name in (url, hadoop, iceberg):
        assert key_at(store, f"{name}/days/data") == "days/data"
        assert key_at(store, f"{name}er/days") is None
    assert key_at(store, "file:///lake/pre/days") is None


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("az://lake", {**OURS, "use_emulator": "true"}, "account_name"),
        ("memory://lake", {}, "object store"),
    ],
)
def test_a_repository_that_nobody_else_can_name_is_not_published(
    url: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(url)) as info:
        root_of(open_store(url, storage_options=options), None)

    assert told in info.value.hint


named_places = pytest.mark.parametrize(
    ("named", "hadoop", "iceberg"),
    [((url, options), hadoop, iceberg) for url, options, hadoop, iceberg in PLACES],
    indirect=["named"],
)


@pytest.mark.parametrize("root", ["lake", "", "s3a:bucket", "s3a://bucket/a\nb", "s3a://K:S@lake"])
def test_a_root_that_no_reader_could_go_to_is_refused(tmp_path: Path, root: str) -> None:
    days = lakebed.open_repository(tmp_path).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append([{"p": "a", "n": 1}])
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(InvalidInputError) as caught:
        days.publish("iceberg", root=root)
    with pytest.raises(InvalidInputError):
        days.publish("hive", table="days", root=root, print_sql=True)

    assert "K:S" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@named_places
def test_statements_for_hive_name_directories_as_hadoop_does(
    named: lakebed.Dataset, hadoop: str, iceberg: str
) -> None:
    told = "\n".join(named.publish("hive", table="lake.days", print_sql=True))

    places = re.findall(r"LOCATION '([^']*)'", told)
    assert places
    assert all(place.startswith(f"{hadoop}/days/") for place in places)


@named_places
def test_iceberg_names_files_and_its_own_metadata_as_its_connectors_do(
    named: lakebed.Dataset, hadoop: str, iceberg: str, tmp_path: Path
) -> None:
    done = named.publish("iceberg")

    assert done.table == f"{iceberg}/days/iceberg"
    assert _named_in_iceberg(tmp_path / "lake/days/iceberg/metadata", f"{iceberg}/days/") > 3
    named.append([{"p": "c", "n": 2}])
    named.publish("iceberg")
    assert named.publish("iceberg", check=True).was_in_step
    assert named.unpublish("iceberg")


@named_places
def test_delta_names_files_by_their_paths_alone(
    named: lakebed.Dataset, hadoop: str, iceberg: str, tmp_path: Path
) -> None:
    named.publish("delta")

    (log,) = (tmp_path / "lake/days/data/_delta_log").glob("*0.json")
    lines = map(json.loads, log.read_text().splitlines())
    (path,) = (line["add"]["path"] for line in lines if "add" in line)
    assert path.startswith("p=a%2520b%2525/batch_id=")


def test_where_nobody_names_the_repository_a_root_that_is_given_serves_for_everything(
    tmp_path: Path,
) -> None:
    store = _Named(tmp_path / "lake", durable=False)
    store.uri = "az://lake"
    days = lakebed.Repository(store).create("days", lakebed.DatasetDescriptor(schema=SCHEMA))
    days.append([{"p": "a", "n": 1}])
    with pytest.raises(InvalidInputError, match="no URI in the file systems of Hadoop"):
        days.publish("iceberg")

    root = "http://127.0.0.1:10000/ours/lake"
    days.publish("iceberg", root=root)
    days.append([{"p": "b", "n": 2}])
    assert days.publish("iceberg", root=root).added_count == 1

    assert _named_in_iceberg(tmp_path / "lake/days/iceberg/metadata", f"{root}/days/") > 3
    assert days.unpublish("iceberg")


def _named_in_iceberg(metadata: Path, prefix: str) -> int:
    """Return how many names of objects there are; each must begin like this."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import read_manifest_list

    class Here(PyArrowFileIO):
        """The files of that folder, whatever they are called."""

        def new_input(self, location):
            return super().new_input(str(metadata / location.rpartition("/")[2]))

    io = Here()
    document = json.loads(max(metadata.glob("v*.json")).read_text())
    names = [f"{document['location']}/"]
    for snapshot in document["snapshots"]:
        names.append(snapshot["manifest-list"])
        for manifest in read_manifest_list(io.new_input(snapshot["manifest-list"])):
            names.append(manifest.manifest_path)
            names += [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)]
    wrong = [name for name in names if not name.startswith(prefix)]
    assert not wrong
    return len(names)

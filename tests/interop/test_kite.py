"""Datasets that Kite 1.1.0 itself has written, adopted where they lie.

Kite comes from Maven Central, by the resolver that Spark brings along, and runs on Spark's Hadoop.
"""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import lakebed
from lakebed.spark.java import ensure_java

pytestmark = [pytest.mark.interop, pytest.mark.long]

KITE = "org.kitesdk:kite-data-core:1.1.0"
HADOOP = ("hadoop-client-api", "hadoop-client-runtime")
RESOLVE = """
import sys
from pyspark.sql import SparkSession
settings = {"spark.ui.enabled": "false", "spark.jars.packages": sys.argv[1],
            "spark.jars.ivy": sys.argv[2]}
SparkSession.builder.master("local[1]").config(map=settings).getOrCreate().stop()
"""
SCHEMA = {
    "type": "record",
    "name": "User",
    "namespace": "org.example",
    "fields": [
        {"name": "userId", "type": "long"},
        {"name": "username", "type": "string"},
        {"name": "seen", "type": "long"},
        {
            "name": "position",
            "type": {
                "type": "record",
                "name": "Position",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
    ],
    "partitions": [
        *({"type": one, "source": "seen"} for one in ("year", "month", "day", "hour", "minute")),
        {"type": "hash", "source": "seen", "buckets": 3},
        {"type": "hash", "source": "userId", "buckets": 53},
        {"type": "hash", "source": "username", "name": "letters", "buckets": 16},
        {"type": "identity", "source": "username"},
        {"type": "range", "source": "userId", "size": 10},
        {"type": "dateFormat", "source": "seen", "name": "stamp", "format": "yyyy-MM-dd'T'HHmm"},
        {"type": "identity", "source": "position.city", "name": "city"},
    ],
}
USERS = [
    (1234, "jane", 1384912178434, "NY/USA"),
    (-1, "John Doe", 1379020547042, "a=b"),
    (2**32, "100%", -1, "日本"),
    (-(2**40), "polygenelubricants", 1384204547042, "é a+b"),
    (7, "_x", 0, "~*,"),
    (8, "..", 0, "tab less"),
]


@pytest.fixture(scope="session")
def kite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of Kite."""
    home = tmp_path_factory.mktemp("ivy")
    subprocess.run([sys.executable, "-c", RESOLVE, KITE, str(home)], check=True, timeout=600)
    jars = Path(pyspark.__file__).parent / "jars"
    hadoop = [str(next(jars.glob(f"{name}-*.jar"))) for name in HADOOP]
    return ":".join([f"{home}/jars/*", *hadoop])


@pytest.mark.parametrize("file_format", ["avro", "parquet"])
def test_dataset_that_kite_wrote_is_adopted(kite: str, tmp_path: Path, file_format: str) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(SCHEMA))
    rows = "\n".join("\t".join(map(str, user)) for user in USERS)
    (tmp_path / "users.tsv").write_text(rows, encoding="utf-8")
    program = Path(__file__).with_name("WriteKite.java")
    command = [str(ensure_java().path / "bin" / "java"), "-Dfile.encoding=UTF-8", "-cp", kite]
    files = [str(tmp_path / "user.avsc"), file_format, str(tmp_path / "users.tsv")]
    uri = f"dataset:file:{tmp_path}/ns/users"
    subprocess.run([*command, str(program), uri, *files], check=True, timeout=300)

    users = lakebed.open_repository(tmp_path / "ns").adopt("users", kite=True)

    expected = [
        {"userId": number, "username": name, "seen": seen, "position": {"city": city}}
        for number, name, seen, city in USERS
    ]
    by_id = sorted(users.kite.reader(), key=lambda row: row["userId"])
    assert by_id == sorted(expected, key=lambda row: row["userId"])
    assert users.descriptor.partition_by == lakebed.DatasetDescriptor(schema=SCHEMA).partition_by
    assert users.descriptor.properties == {"owner": "kite"}
    for user in expected:
        for condition in (
            users.kite.with_("userId", user["userId"]),
            users.kite.with_("username", user["username"]).kite.with_("seen", user["seen"]),
        ):
            assert (list(condition.kite.reader()), len(condition.plan())) == ([user], 1)
    assert [one for one in users.check().findings if one.severity != "note"] == []
    users.append(expected[:1])
    assert users.kite.with_("userId", 1234).count() == 2

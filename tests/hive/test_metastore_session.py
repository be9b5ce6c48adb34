"""The Spark session of a metastore: found again while it runs, and no other one is taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError
from lakebed.tables.hive import metastore_session

APPENDS = """
import pyarrow, lakebed
lake = lakebed.open_repository("lake")
properties = {"publish.hive": "true", "publish.hive.table": "t"}
descriptor = lakebed.DatasetDescriptor(
    schema=pyarrow.schema([("day", pyarrow.string()), ("n", pyarrow.int64())]),
    partition_by="day", properties=properties,
)
dataset = lake.create("days", descriptor)
for n in range(3):
    print(dataset.append([{"day": "a", "n": n}]).not_published)
print([shown.is_stale for shown in dataset.inspect.publications()])
"""


class RunningSession:
    """A session with the settings that Spark shows once it runs."""

    def __init__(self, directory: Path) -> None:
        self.conf = {
            "spark.sql.catalogImplementation": "hive",
            # Spark writes the directory that it was given as a URI.
            "spark.sql.warehouse.dir": f"file:{directory}/tables",
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={directory}/metastore_db;create=true"
            ),
        }


def test_session_of_a_directory_is_found_again_and_no_other_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = RunningSession(tmp_path / "my hive")
    monkeypatch.setattr(metastore_session, "find_running", lambda: session)

    assert metastore_session.session_of(tmp_path / "my hive") is session
    for other in (str(tmp_path / "others"), "thrift://127.0.0.1:9083"):
        with pytest.raises(InvalidInputError, match="uses another metastore"):
            metastore_session.session_of(other)


@pytest.mark.spark
@pytest.mark.long
def test_each_commit_of_a_process_is_published_to_the_metastore_in_a_directory(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", APPENDS],
        cwd=tmp_path,
        env=os.environ | {"LAKEBED_METASTORE": str(tmp_path / "hive")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.stdout.splitlines() == ["()"] * 3 + ["[False]"], done.stderr[-3000:]

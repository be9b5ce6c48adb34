"""Catalogs of Iceberg: in SQLite, of Glue as moto plays it, and Iceberg's own REST server."""

import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from lakebed.spark.java import ensure_java

POM = Path(__file__).with_name("rest-server.pom.xml")
_PORT = re.compile(rb"Started oejs\.ServerConnector.*:([0-9]+)\}")


@dataclass(frozen=True)
class KnownCatalog:
    """A catalog, and a table in it that is not there yet.

    Attributes:
        name: By which pyiceberg's configuration knows it.
        table: As `namespace.table`.
        settings: What that configuration says.
        catalog: To look at it from outside.
    """

    name: str
    table: str
    settings: dict[str, str]
    catalog: Catalog

    @property
    def place(self) -> dict[str, str]:
        """What `publish_iceberg` is told."""
        return {"catalog": self.name, "table": self.table}


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start the REST catalog that Iceberg tests its own clients with; Maven fetches it."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("needs Maven, which fetches the server")
    home = tmp_path_factory.mktemp("rest")
    java = ensure_java().path
    subprocess.run(
        [
            *(maven, "-q", "-B", "-f", POM, "dependency:build-classpath"),
            f"-Dmdep.outputFile={home}/classpath",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=500,
    )
    (home / "warehouse").mkdir()
    environ = {
        **os.environ,
        "CATALOG_REST_PORT": "0",
        "CATALOG_WAREHOUSE": f"file://{home}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{home}/catalog.db",
    }
    command = [
        *(str(java / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
        *("-cp", (home / "classpath").read_text().strip()),
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]
    log = home / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=home, env=environ, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 120
        while (started := _PORT.search(log.read_bytes())) is None:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        yield {"type": "rest", "uri": f"http://127.0.0.1:{int(started[1])}"}
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(params=["sql", "glue", pytest.param("rest", marks=pytest.mark.long)])
def known_catalog(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KnownCatalog]:
    """Every kind of catalog, under the name `doors`."""
    if request.param == "rest":
        settings = request.getfixturevalue("rest_server")
    else:
        (tmp_path / "warehouse").mkdir()
        settings = {"type": request.param, "warehouse": f"file://{tmp_path}/warehouse"}
    if request.param == "sql":
        settings["uri"] = f"sqlite:///{tmp_path}/catalog.db"
    if request.param == "glue":
        settings |= {
            "glue.endpoint": request.getfixturevalue("s3_endpoint"),
            "glue.region": "us-east-1",
            "glue.access-key-id": "testing",
            "glue.secret-access-key": "testing",
        }
    with load_catalog("doors", **settings) as catalog:

        def load(name: str) -> Catalog:
            if name != "doors":
                raise ValueError(name)
            return load_catalog("doors", **settings)

        # pyiceberg reads its configuration once a process; `test_configuration` does, in another.
        monkeypatch.setattr("lakebed.tables.iceberg.homes.load_catalog", load)
        yield KnownCatalog("doors", f"web_{uuid.uuid4().hex}.days", settings, catalog)

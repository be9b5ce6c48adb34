"""What every test gets."""

import functools
import inspect
import json
import os
import sys
import urllib.request
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click.testing
import pytest
from heads import ON_TREES, is_named_by, of_documents, plant_trees
from hypothesis import HealthCheck, settings
from places import BUCKET, PROGRAMS, SERVERS, TRUE_SERVERS, Place
from s3_services import ForgetfulService, served

if TYPE_CHECKING:
    from hdfs_cluster import Cluster
    from pyspark.sql import SparkSession

# No deadline and no complaint about slowness: a shared machine is slow at any moment.
settings.register_profile(
    "long",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=2_000,
)
# What a change is judged by says the same each time; `long` looks elsewhere in each run.
settings.register_profile(
    "ci", settings.get_profile("long"), derandomize=True, database=None, max_examples=100
)
settings.register_profile("test", settings.get_profile("ci"), max_examples=16)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# The spark tests run on a session of Spark Connect instead, behind which there is no JVM to touch.
ON_CONNECT = os.environ.get("LAKEBED_TEST_SPARK", "classic") == "connect"

# click 8.1 mixes the two streams of a command, unless it is told not to; then `output` is the
# first of them alone.
if "mix_stderr" in inspect.signature(click.testing.CliRunner).parameters:
    click.testing.CliRunner.__init__ = functools.partialmethod(  # type: ignore[method-assign]
        click.testing.CliRunner.__init__, mix_stderr=False
    )
    click.testing.Result.output = property(  # type: ignore[assignment]
        lambda result: result.stdout + result.stderr
    )

# Comparisons with other tools and older papers: `make compat`.
_COMPARISONS = frozenset({"golden", "interop", "kite", "telemetry"})

# What asks a server that the tests start waits for it most of the time.
_SERVERS = frozenset({"s3_application", "server"})
_PLAYED = frozenset({"glue", "s3", "dynamodb", "s3-dynamodb"})  # as parameters of fixtures


def pytest_configure() -> None:
    """Let datasets begin as trees that fold every few commits, if that is asked for."""
    if ON_TREES:
        plant_trees()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for doctests in test files only: a worker script may need packages of its own."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: that of Spark mostly waits for its JVM."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep on one worker the tests that share what is dear to start, and mark those of a tier."""
    other = dict(of_documents()) if ON_TREES else {}
    for item in items:
        reason = next((other[one] for one in other if is_named_by(one, item.nodeid)), None)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"Of documents alone: {reason}"))
        if _asks_a_server(item):
            item.add_marker(pytest.mark.thorough)
        if item.path.parent.name in _COMPARISONS:
            item.add_marker(pytest.mark.compat)
        if item.get_closest_marker("crash") or item.get_closest_marker("install"):
            item.add_marker(pytest.mark.thorough)
        classic = item.get_closest_marker("classic")
        if ON_CONNECT and classic is not None:
            item.add_marker(pytest.mark.skip(reason=f"Not on Spark Connect: {classic.args[0]}"))
        for since in item.iter_markers("since_spark"):
            _skip_on_older_spark(item, *since.args)
        group = _group_of(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))


def _skip_on_older_spark(item: pytest.Item, release: str, reason: str) -> None:
    import pyspark

    here, needed = (tuple(map(int, text.split(".")[:2])) for text in (pyspark.__version__, release))
    if here < needed:
        item.add_marker(pytest.mark.skip(reason=f"Not before Spark {release}: {reason}"))


def _asks_a_server(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    call = getattr(item, "callspec", None)
    parameters = (
        [] if call is None else [value for value in call.params.values() if isinstance(value, str)]
    )
    return not _SERVERS.isdisjoint(item.fixturenames) or not _PLAYED.isdisjoint(parameters)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest whose groups pytest-xdist forgets without a word: each worker would start Spark."""
    if session.config.getoption("loadgroup", default=False):  # only workers have it
        marked = [item for item in session.items if item.get_closest_marker("xdist_group")]
        if not all("@" in item.nodeid for item in marked):
            raise pytest.UsageError(
                "This pytest-xdist does not group tests: take locks/develop.txt"
            )


def _group_of(item: pytest.Item) -> str | None:
    """Return the name of what an item shares with others: a JVM, a process, a fixture of its module."""
    for mark in ("spark", "interop", "browser"):
        if item.get_closest_marker(mark):
            return mark
    call = getattr(item, "callspec", None)
    place = None if call is None else call.params.get("place")
    if place == "hdfs" or "hdfs_cluster" in getattr(item, "fixturenames", ()):
        return "hdfs"
    definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    is_shared = any(found[-1].scope == "module" for found in definitions.values())
    return item.nodeid.partition("::")[0] if is_shared else None


@pytest.fixture(autouse=True)
def _hide_developer_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the developer has set for Lakebed and for AWS out of the tests."""
    for name in [name for name in os.environ if name.startswith(("LAKEBED_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "LAKEBED_CONFIG"):
        monkeypatch.setenv(name, os.devnull)


_SPARK_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Tests are short: compile little, collect simply.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Start one small Spark for all tests that need one."""
    from lakebed.spark.session import local_session

    session = (
        _connect_session()
        if ON_CONNECT
        else local_session("2", app_name="lakebed-tests", settings=_SPARK_SETTINGS)
    )
    yield session
    session.stop()


def _connect_session() -> "SparkSession":
    """Start a server of Spark Connect, and return a session that knows no JVM."""
    from pyspark.sql import SparkSession

    from lakebed.spark.java import ensure_java
    from lakebed.spark.session import local_settings

    os.environ["JAVA_HOME"] = str(ensure_java().path)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_TESTING"] = "1"  # a port that is free, instead of the one that all take
    builder = SparkSession.builder.appName("lakebed-tests")
    for name, value in local_settings(_SPARK_SETTINGS).items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The server has them all; the client then sets them once more, and not all can be set.
        warnings.filterwarnings("ignore", "Failed to set", UserWarning)
        session = builder.remote("local[2]").getOrCreate()
    assert type(session).__module__.startswith("pyspark.sql.connect")
    return session


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Cluster"]:
    """Start a NameNode and a DataNode."""
    from hdfs_cluster import cluster

    with cluster(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="session")
def s3_application() -> Any:
    """Return S3 as moto plays it; whoever serves it serves the same buckets."""
    from moto.server import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


@pytest.fixture(scope="session")
def s3_endpoint(s3_application: Any) -> Iterator[str]:
    """Serve S3."""
    with served(s3_application) as url:
        yield url


@pytest.fixture
def forgetful_s3(s3_application: Any) -> Iterator[tuple[ForgetfulService, str]]:
    """Serve the same S3 behind a service that can forget headers, and say where."""
    service = ForgetfulService(s3_application)
    with served(service) as url:
        yield service, url


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, str]:
    """Return the storage options that lead to the service; it has two buckets."""
    versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    for path, body in [("lake", b""), ("versioned", b""), ("versioned?versioning", versioning)]:
        request = urllib.request.Request(f"{s3_endpoint}/{path}", data=body, method="PUT")
        request.add_header("Content-Type", "application/xml")  # a form would be sent elsewhere
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
    return {
        "endpoint": s3_endpoint,
        "allow_http": "true",
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
        "max_retries": "0",
    }


@pytest.fixture(scope="session")
def s3_server_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that starts a server of S3 by its name, once, and tells what leads there."""
    with ExitStack() as running:

        @functools.cache
        def options_of(name: str) -> dict[str, str]:
            server = SERVERS[name]
            if not (PROGRAMS / server.program).is_file():
                pytest.skip(f"{name} is not installed: make servers-env")
            return running.enter_context(server.serving(tmp_path_factory.mktemp(name)))

        yield options_of


@pytest.fixture(
    params=[
        "directory",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("hdfs", *TRUE_SERVERS)),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where a dataset may be, for this process and for those that the test starts."""
    if request.param == "directory":
        return Place(root=str(tmp_path))
    if request.param == "hdfs":
        cluster = request.getfixturevalue("hdfs_cluster")
        return Place(root=f"webhdfs://{cluster.http_address}/{uuid.uuid4().hex}")
    options = request.getfixturevalue("s3_server_options")(request.param)
    monkeypatch.setenv("LAKEBED_STORAGE_OPTIONS", json.dumps(options))
    return Place(root=f"s3://{BUCKET}/{uuid.uuid4().hex}")

"""What every test gets."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline and no complaint about slowness: a shared machine is slow at any moment.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for doctests in test files only: a worker script may need packages of its own."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper else None


@pytest.fixture(autouse=True)
def _hide_developer_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the developer has set for Lakebed out of the tests."""
    for name in [name for name in os.environ if name.startswith("LAKEBED_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Start one small Spark for all tests that need one."""
    from lakebed.spark.session import local_session

    session = local_session(
        "2",
        app_name="lakebed-tests",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            # Tests are short: compile little, collect simply.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()

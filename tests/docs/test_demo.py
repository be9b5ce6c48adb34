"""The demo says what is wrong, and does not destroy what is not its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

DEMO = Path(__file__).parents[2] / "examples" / "flights.py"


def _demo(directory: Path, cwd: Path, demo: Path = DEMO) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(demo), "--directory", str(directory)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_demo_refuses_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")

    done = _demo(tmp_path, tmp_path)

    assert done.returncode == 1
    assert "FAILED" in done.stderr
    assert "--directory" in done.stderr
    assert mine.read_text() == "precious"


def test_a_wrong_answer_ends_the_demo_with_exit_code_1(tmp_path: Path) -> None:
    # Instead of loading, count: nothing is there, so that the first answer is wrong.
    script = (
        f"import sys; sys.path.insert(0, {str(DEMO.parent)!r}); import flights\n"
        "flights.load_year = lambda spark, dataset, csv, truth: "
        "flights.check('rows', dataset.count(), len(truth))\n"
        "flights.local_session = lambda: type('S', (), {'stop': lambda self: None})()\n"
        f"sys.argv = ['flights', '--directory', {str(tmp_path / 'lake')!r}]\n"
        "sys.exit(flights.main())"
    )

    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "FAILED: rows: 0, but it should be 336776." in done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_demo_runs_through(tmp_path: Path) -> None:
    done = _demo(tmp_path / "lake", tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK: 336,256 rows")
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


@pytest.mark.spark
@pytest.mark.long
def test_a_year_of_raw_files_is_archived_ingested_and_replaced_by_day(tmp_path: Path) -> None:
    done = _demo(tmp_path / "archive", tmp_path, DEMO.with_name("archive.py"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK: 333,010 rows of 366 raw files")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.spark
@pytest.mark.long
def test_demo_of_batches_runs_through(tmp_path: Path) -> None:
    done = _demo(tmp_path / "lake", tmp_path, DEMO.with_name("batches.py"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK: 335,767 rows")
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


@pytest.mark.thorough
def test_a_year_of_runs_goes_through_one_declaration(tmp_path: Path) -> None:
    done = _demo(tmp_path / "year", tmp_path, DEMO.with_name("pipeline.py"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK: 328,410 rows")
    assert [path.name for path in tmp_path.iterdir()] == ["year"]

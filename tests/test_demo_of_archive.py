"""The demo of the archive reads all its damaged files: it prints what is left out, and goes on."""

import importlib.util
import random
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import lakebed

EXAMPLES = Path(__file__).parent.parent / "examples"
MONTHS = ("1", "2")


def load_example(name: str) -> ModuleType:
    """Load an example by a name of its own: a folder of tests is called archive, too."""
    spec = importlib.util.spec_from_file_location(f"demo_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_no_damaged_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = load_example("flights")
    monkeypatch.setitem(sys.modules, "flights", flights)  # which the other one imports
    demo = load_example("archive")
    lines, _ = demo.read_truth(flights.unpack_flights(tmp_path))
    archive = lakebed.open_archive(tmp_path / "raw")
    chance = random.Random(demo.SEED)
    by_day: dict[str, list[str]] = defaultdict(list)
    for name, line in lines.items():
        if line["month"] in MONTHS:
            by_day[demo.day_of(line)].append(name)
    days = {day: demo.cut(names, lines, chance) for day, names in sorted(by_day.items())}
    for day, content in days.items():
        demo.push(archive, day, content)

    report = demo.declare(tmp_path).run()

    assert not report.left_out
    assert report.file_count == len(days) == 31 + 28
    assert report.rejected_count == sum(len(day.damaged) for day in days.values())
    # More than the default allows, which kept such days back.
    assert any(len(day.damaged) > len(day.lines) / 100 for day in days.values())

"""How long the command line takes to begin, beside a bare click application that imports pyarrow.

Each is a process of its own, in turns; compared is the processor's time, which other processes do
not lengthen much, and printed is the clock's too: medians of both. With --check it ends with 1 where
a call takes more than 1.3 times as long as the bare application's help.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import lakebed

MAX_RATIO = 1.3
BARE = """\
import click
import pyarrow

@click.command()
def main():
    "A bare application."

main(["--help"])
"""
LAKEBED = "import lakebed.cli; lakebed.cli.main(prog_name='lakebed')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        repository = lakebed.open_repository(Path(directory) / "lake")
        schema = pa.schema([("n", pa.int64())])
        for name in ("flights", "planes"):
            repository.create(name, lakebed.DatasetDescriptor(schema=schema)).append([{"n": 1}])
        completion = {
            "_LAKEBED_COMPLETE": "bash_complete",
            "COMP_WORDS": "lakebed show lake/f",
            "COMP_CWORD": "2",
        }
        calls = {
            "bare": ([BARE], {}),
            "lakebed --help": ([LAKEBED, "--help"], {}),
            "lakebed show --help": ([LAKEBED, "show", "--help"], {}),
            "completion of a name": ([LAKEBED], completion),
            "lakebed show lake/flights": ([LAKEBED, "show", "lake/flights"], {}),
        }
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for number in range(given.rounds + 1):
            for name, (arguments, more) in calls.items():
                measured_s = timed(arguments, more, directory)
                if number:  # the first has compiled all modules, as an installation does
                    seconds[name].append(measured_s)
    processor = {
        name: statistics.median(cpu for cpu, _ in measured) for name, measured in seconds.items()
    }
    for name, measured in seconds.items():
        clock = statistics.median(clock for _, clock in measured)
        ratio = processor[name] / processor["bare"]
        print(f"{name:>26}: {processor[name]:.3f} s, {ratio:.2f} times; by the clock {clock:.3f} s")
    names = list(calls)[1:4]
    sys.exit(given.check and any(processor[name] > MAX_RATIO * processor["bare"] for name in names))


def timed(arguments: list[str], more: dict[str, str], directory: str) -> tuple[float, float]:
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", *arguments],
        cwd=directory,
        env={**environment, **more, "PYTHONPYCACHEPREFIX": f"{directory}/compiled"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    clock = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


if __name__ == "__main__":
    main()

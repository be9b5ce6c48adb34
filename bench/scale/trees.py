"""How the calls of a dataset grow with its number of files, if its head is a tree, or a document.

    python bench/scale/trees.py [--sizes N …] [--documents N …] [--calls NAME …]

Each figure is of a fresh process, the least of a few, since other work only adds to it. The ratio is
to the same call at the smallest size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
DOCUMENTS = (1_000, 10_000, 100_000, 1_000_000)
READS = ("plan of a day", "count", "partitions", "lookup of an id", "plan of a day, older")
WRITES = (
    "commit of one file",
    "overwrite of a day",
    "delete of a day",
    "rerun of a run",
    "rollback",
    "merge into a day",
)
ROUNDS = 5
# The limits that the ratios must meet, by call: at a million files and beyond.
LIMITS = {
    "commit of one file": (1.2, 1.5),
    "plan of a day": (2, 2),
    "lookup of an id": (2, 2),
    "overwrite of a day": (2, 2),
    "plan of a day, older": (2, 2),
}
MOST_MIB, MOST_ROOT_KB, MOST_REQUESTS, MOST_GROWTH = 100, 200, 9, 2.5

Figures = dict[str, Any]


def run(action: str, location: Path, **arguments: Any) -> Figures:
    """Run an action in a fresh process."""
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "tree_worker.py"),
            action,
            json.dumps({"location": str(location), **arguments}),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(location: Path, count: int, calls: list[str], rounds: int) -> list[Figures]:
    """Measure each call a few times."""
    rows = []
    for call in calls:
        found = [
            run("measure", location, count=count, call=call, number=number)
            for number in range(rounds)
        ]
        best = min(found, key=lambda one: one["cpu_ms"])
        rows.append({"call": call, "files": count, **best})
        _say(rows[-1])
    return rows


def _say(row: Figures) -> None:
    sys.stdout.write(
        f"{row['files']:>10,}  {row['call']:22} {row['cpu_ms']:8.1f} ms  "
        f"{row['peak_mib']:5} MiB, {row['own_mib']:4.0f} own  {row['requests']:3} requests  "
        f"{row['kb_read']:8.0f} kB read  {row['kb_written']:7.0f} kB written  "
        f"{row['root_kb']:5.0f} kB root  {row['answer']}\n"
    )
    sys.stdout.flush()


def table(rows: list[Figures]) -> str:
    """Return the figures as a table in Markdown: milliseconds, and the ratio to the smallest size."""
    sizes = sorted({row["files"] for row in rows})
    lines = [
        "| call | " + " | ".join(f"{size:,}" for size in sizes) + " | MiB | requests | kB read |",
        "| --- |" + " --- |" * (len(sizes) + 3),
    ]
    for call in dict.fromkeys(row["call"] for row in rows):
        own = {row["files"]: row for row in rows if row["call"] == call}
        first, last = own[min(own)], own[max(own)]
        cells = [
            f"{own[size]['cpu_ms']:.1f} ({own[size]['cpu_ms'] / first['cpu_ms']:.1f})"
            if size in own
            else "-"
            for size in sizes
        ]
        lines.append(
            f"| {call} | {' | '.join(cells)} | {last['peak_mib']} | {last['requests']} "
            f"| {last['kb_read']:,.0f} |"
        )
    return "\n".join(lines)


def misses(rows: list[Figures]) -> list[str]:
    """Return the limits that the figures of trees do not meet."""
    found = []
    for call, (at_million, beyond) in LIMITS.items():
        own = {row["files"]: row for row in rows if row["call"] == call}
        for size, row in own.items():
            ratio = row["cpu_ms"] / own[min(own)]["cpu_ms"]
            limit = at_million if size <= 1_000_000 else beyond
            if ratio > limit:
                found.append(f"{call} at {size:,}: {ratio:.1f} times, and not {limit}")
    for row in rows:
        if row["peak_mib"] > MOST_MIB and row["call"] in LIMITS:
            found.append(f"{row['call']} at {row['files']:,}: {row['peak_mib']} MiB")
        if row["root_kb"] > MOST_ROOT_KB:
            found.append(f"root at {row['files']:,}: {row['root_kb']:.0f} kB")
        if row["call"] == "commit of one file" and row["requests"] > MOST_REQUESTS:
            found.append(f"commit at {row['files']:,}: {row['requests']} requests")
    return found


def measure_trees(
    sizes: list[int], documents: list[int], rounds: int, scratch: Path, calls: list[str]
) -> Figures:
    """Measure trees with an index, and documents of the sizes that they can have."""
    results: Figures = {"tree": [], "document": []}
    for head, counts in (("tree", sizes), ("document", documents)):
        for count in counts:
            place = scratch / f"{head}-{count}"
            place.mkdir(parents=True)
            run("prepare", place, count=count, index=True, head=head)
            results[head] += measure(place, count, calls, rounds)
            shutil.rmtree(place)
    return results


def main() -> None:
    """Run what the command line asks for, and print tables and the limits that are not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--documents", type=int, nargs="*", default=list(DOCUMENTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", nargs="*", default=[*READS, *WRITES])
    parser.add_argument("--commits", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-trees-") as directory:
        scratch = Path(directory)
        results = measure_trees(given.sizes, given.documents, given.rounds, scratch, given.calls)
        for head, rows in results.items():
            if rows:
                sys.stdout.write(f"\n{head}: CPU ms, and the ratio\n\n{table(rows)}\n")
        found = misses(results["tree"])
        if given.commits:
            place = scratch / "growth"
            place.mkdir()
            run("prepare", place, count=1_000, index=False, head="tree")
            grown = run("grow", place, count=1_000, commits=given.commits)
            ratio = grown["last_hundred_ms"] / grown["first_hundred_ms"]
            sys.stdout.write(f"\n{grown}: {ratio:.2f}\n")
            if ratio > MOST_GROWTH:
                found.append(f"{given.commits} commits: {ratio:.1f} times")
        sys.stdout.write("".join(f"limit not met: {one}\n" for one in found))


if __name__ == "__main__":
    main()

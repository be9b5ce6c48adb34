"""How planning, commits and lookups grow with the number of data files, beside the peers.

Datasets of 1,000 to 1,000,000 files are written as state alone, without data files. Each figure is
of a fresh process, the median of a few; the systems take turns, in one run. Then one id is looked
for among ten million real rows in 1,000 files. The results are printed as tables, and written with
a plot to the directory that `--output` names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 5
COMMITS = 5
MANY = 100_000  # files, from which on the peers take so long that fewer rounds must do
DELAY_MS = 50
ACTIONS = ("open + prune", "lookup of one id", "lookup of 1,000 ids", "commit of one file")
BUCKET = "scale"
# What a peer takes so long for that it is left out: planning over a million files took pyiceberg
# a minute and more, plateau rewrites all it has with each commit.
LARGEST = {
    "lakebed": 10**9,
    "tree": 10**9,
    "deltalake": 10**9,
    "pyiceberg": 100_000,
    "plateau": 100_000,
}
_OWN = ("lakebed", "tree")  # the head of Lakebed is a document, or a tree
LARGEST_MANY = {**LARGEST, "pyiceberg": 1_000}  # of a lookup of 1,000 ids

Figures = dict[str, Any]
_console = Console(width=130)


@dataclass(frozen=True, slots=True)
class System:
    """A table format in an environment of its own.

    Attributes:
        name: As the tables call it.
        python: Of its environment.
        worker: Its script.
        extra: Arguments that only it takes, by location.
        takes_storage: Whether it can be led to the object store of the benchmark.
    """

    name: str
    python: Path
    worker: str
    extra: Callable[[str], dict[str, Any]] = field(default=lambda _: {})
    takes_storage: bool = True

    def run(self, action: str, location: str, **arguments: Any) -> Figures:
        """Run an action in a fresh process."""
        if not self.takes_storage:
            arguments.pop("storage", None)
        given = {"location": location, **self.extra(location), **arguments}
        done = subprocess.run(
            [str(self.python), str(HERE / self.worker), action, json.dumps(given)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))


def systems(scratch: Path) -> list[System]:
    """Return the systems whose environments there are."""

    def catalog(location: str) -> dict[str, str]:
        name = location.replace("/", "_").replace(":", "")
        return {"catalog": str(scratch / f"catalog{name}.db")}

    def python(venv: str) -> Path:
        return ROOT / venv / "bin" / "python"

    found = [
        System("lakebed", Path(sys.executable), "lakebed_worker.py"),
        System("tree", Path(sys.executable), "lakebed_worker.py"),
        System("deltalake", python(".venv-peers"), "delta_worker.py"),
        System("pyiceberg", python(".venv-peers"), "iceberg_worker.py", catalog),
        System("plateau", python(".venv-plateau"), "plateau_worker.py", takes_storage=False),
    ]
    return [one for one in found if one.python.exists()]


def prepare(system: System, location: str, count: int, storage: dict[str, str]) -> None:
    """Write the state of a dataset of `count` files."""
    if "://" not in location:
        Path(location).mkdir(parents=True)
    if system.name == "tree":
        maker = replace(system, worker="tree_worker.py")
        maker.run("prepare", location, count=count, storage=storage, index=True)
        return
    own = {"head": "msgpack.zstd", "index": True} if system.name == "lakebed" else {}
    system.run("prepare", location, count=count, storage=storage, **own)


def in_turns(
    chosen: list[System], rounds: int, run: Callable[[System], Figures]
) -> dict[str, Figures]:
    """Run an action of each system in every round; return the medians."""
    found: dict[str, list[Figures]] = {one.name: [] for one in chosen}
    for round_ in range(rounds):
        for i in range(len(chosen)):
            one = chosen[(i + round_) % len(chosen)]
            found[one.name].append(run(one))
    return {name: _medians(figures) for name, figures in found.items()}


def _medians(figures: list[Figures]) -> Figures:
    numbers = [name for name, value in figures[0].items() if isinstance(value, int | float)]
    return {name: statistics.median(one[name] for one in figures) for name in numbers}


def measure_sizes(
    chosen: list[System], sizes: list[int], rounds: int, wanted: list[str], scratch: Path
) -> list[Figures]:
    """Measure open + prune, lookups and commits at each size, on the local disk."""
    rows = []
    for count in sizes:
        here = [one for one in chosen if count <= LARGEST[one.name]]
        places = {one.name: str(scratch / f"{one.name}-{count}") for one in here}
        for one in here:
            prepare(one, places[one.name], count, {})
        actions: list[tuple[str, str, dict[str, Any], list[System]]] = [
            ("open + prune", "open_and_prune", {}, here),
            ("lookup of one id", "lookup", {"number": 1}, here),
            (
                "lookup of 1,000 ids",
                "lookup",
                {"number": 1_000},
                [one for one in here if count <= LARGEST_MANY[one.name]],
            ),
            ("commit of one file", "commit", {"number": COMMITS if count < MANY else 2}, here),
        ]
        for title, action, arguments, who in actions:
            if title not in wanted:
                continue
            times = 1 if action == "commit" else rounds if count < MANY else min(rounds, 3)
            found = in_turns(
                who,
                times,
                lambda one, action=action, arguments=arguments, count=count, places=places: one.run(
                    action, places[one.name], count=count, storage={}, **arguments
                ),
            )
            rows += [
                {"what": title, "files": count, "system": name, **figures}
                for name, figures in found.items()
            ]
            _say(rows[-len(found) :])
        for one in here:
            shutil.rmtree(places[one.name])
    return rows


def measure_requests(
    chosen: list[System], sizes: list[int], wanted: list[str], delay_ms: float
) -> list[Figures]:
    """Count the requests of each action, and time it where each request takes `delay_ms`."""
    rows = []
    here = [one for one in chosen if one.takes_storage]
    with far_store() as endpoint:
        for count in sizes:
            for one in [one for one in here if count <= LARGEST[one.name]]:
                location = f"s3://{BUCKET}/{one.name}-{count}"
                storage = storage_of(one.name, endpoint)
                _ask(f"{endpoint}/-/reset?ms=0")
                prepare(one, location, count, storage)
                for title, action, arguments in (
                    ("open + prune", "open_and_prune", {}),
                    ("lookup of one id", "lookup", {"number": 1}),
                    ("commit of one file", "commit", {"number": 1}),
                ):
                    if title not in wanted:
                        continue
                    _ask(f"{endpoint}/-/reset?ms={delay_ms:g}")
                    figures = one.run(action, location, count=count, storage=storage, **arguments)
                    asked = _ask(f"{endpoint}/-/counts")
                    rows.append(
                        {"what": title, "files": count, "system": one.name}
                        | {"seconds": figures["seconds"], "cpu_s": figures["cpu_s"]}
                        | {"requests": sum(asked.values())}
                        | {kind: asked.get(kind, 0) for kind in ("GET", "HEAD", "PUT", "LIST")}
                    )
                    _say(rows[-1:])
    return rows


def storage_of(system: str, endpoint: str) -> dict[str, str]:
    """Return what leads a system to the store; each has its own words for it."""
    if system in _OWN:
        return {
            "endpoint": endpoint,
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "testing",
            "secret_access_key": "testing",
        }
    if system == "deltalake":
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
    return {
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "testing",
        "s3.secret-access-key": "testing",
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }


@contextlib.contextmanager
def far_store() -> Iterator[str]:
    """Serve S3 with a delay, and with a bucket; yield its address."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "serve.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        _ask(f"{endpoint}/{BUCKET}", method="PUT")
        yield endpoint
        server.kill()


def _ask(url: str, method: str = "GET") -> dict[str, int]:
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
    return json.loads(body) if body.startswith(b"{") else {}


def measure_growth(system: System, commits: int, scratch: Path) -> Figures:
    """Make many commits of one file each, in one process."""
    place = str(scratch / "growth")
    prepare(system, place, 1, {})
    seconds = system.run("commit", place, count=1, number=commits, storage={})["all"]
    first, last = (statistics.median(part) for part in (seconds[:100], seconds[-100:]))
    return {"commits": commits, "first_hundred_s": first, "last_hundred_s": last}


def measure_reads(
    chosen: list[System], rounds: int, files: int, rows: int, scratch: Path
) -> Figures:
    """Look for one id among all rows of real files, end to end, in Python and in Spark."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(7)
    ids = generator.permutation(rows)
    table = pa.table(
        {
            "id": ids,
            "part": np.repeat(np.arange(files, dtype=np.int32), rows // files),
            "amount": generator.random(rows),
            "word": pa.array([f"w{i % 9973}" for i in range(rows)]),
        }
    )
    source = scratch / "rows.parquet"
    pq.write_table(table, source, compression="zstd")
    places = {name: str(scratch / f"reads-{name}") for name in ("lakebed", "plain")}
    lakebed = next(one for one in chosen if one.name == "lakebed")
    for name, place in places.items():
        lakebed.run("write_files", place, rows=str(source), index=name == "lakebed")
    shared = scratch / "reads-files"
    shared.mkdir()
    names = []
    for number in range(files):
        names.append(str(shared / f"part-{number:05d}.parquet"))
        piece = table.slice(number * (rows // files), rows // files)
        pq.write_table(piece, names[-1], compression="zstd")
    ways: list[tuple[str, System, str, dict[str, Any]]] = [
        ("lakebed", lakebed, places["lakebed"], {})
    ]
    for one in chosen:
        if one.name == "deltalake":
            one.run("import_files", str(shared), files=names)
            ways.append(("deltalake, pyarrow", one, str(shared), {"way": "pyarrow"}))
            ways.append(("deltalake, its own engine", one, str(shared), {"way": "query"}))
        if one.name == "pyiceberg":
            one.run("import_files", str(shared), files=names)
            ways.append(("pyiceberg", one, str(shared), {}))
    seconds: dict[str, list[float]] = {name: [] for name, *_ in ways}
    for round_ in range(rounds):
        asked = [int(generator.integers(rows))]
        for name, one, place, extra in ways[round_ % len(ways) :] + ways[: round_ % len(ways)]:
            found = one.run("read", place, ids=asked, **extra)
            if found["rows"] != asked:
                message = f"{name} found {found['rows']}, asked for {asked}"
                raise RuntimeError(message)
            seconds[name].append(found["seconds"])
    in_spark = lakebed.run(
        "spark_read",
        places["lakebed"],
        plain=places["plain"],
        ids=[int(one) for one in generator.integers(rows, size=rounds)],
        rounds=rounds,
    )
    if in_spark["rows"]["index"] != in_spark["rows"]["scan"]:
        message = "Spark found other rows with the index than without."
        raise RuntimeError(message)
    return {
        "python": {name: statistics.median(found) for name, found in seconds.items()},
        "spark": {name: statistics.median(found) for name, found in in_spark["seconds"].items()},
    }


def _say(rows: list[Figures]) -> None:
    for row in rows:
        rest = {k: v for k, v in row.items() if k not in ("what", "files", "system", "seconds")}
        _console.print(
            f"{row['what']:20} {row['files']:>9,} files  {row['system']:10} "
            f"{row['seconds'] * 1000:10.1f} ms  {rest}",
            highlight=False,
        )


def show(results: Figures) -> None:
    """Print what was measured, each system beside Lakebed."""
    for section in ("local", "far"):
        rows = results.get(section, [])
        for what in dict.fromkeys(row["what"] for row in rows):
            table = Table(title=f"{what} ({section} store)")
            names = list(dict.fromkeys(row["system"] for row in rows))
            for heading in ("files", *names, "requests of lakebed", "peak MiB of lakebed"):
                table.add_column(heading, justify="right")
            for count in dict.fromkeys(row["files"] for row in rows if row["what"] == what):
                found = {r["system"]: r for r in rows if (r["what"], r["files"]) == (what, count)}
                own = found.get("lakebed") or found["tree"]
                cells = [
                    f"{found[name]['seconds'] * 1000:,.1f} ms "
                    f"({found[name]['seconds'] / own['seconds']:.2f}; "
                    f"CPU {found[name]['cpu_s'] / own['cpu_s']:.2f})"
                    if name in found
                    else "-"
                    for name in names
                ]
                requests, peak = own.get("requests", "-"), own.get("peak_mib", "-")
                table.add_row(f"{count:,}", *cells, str(requests), str(peak))
            _console.print(table)
    if growth := results.get("growth"):
        ratio = growth["last_hundred_s"] / growth["first_hundred_s"]
        _console.print(
            f"{growth['commits']} commits: last hundred {ratio:.2f} of the first hundred"
        )
    if reads := results.get("reads"):
        own = reads["python"]["lakebed"]
        for name, seconds in reads["python"].items():
            _console.print(f"one id, end to end, {name}: {seconds / own:.1f} times Lakebed")
        spark = reads["spark"]
        _console.print(f"one id, Spark: scan {spark['scan'] / spark['index']:.1f} times the index")


def main() -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--far-sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--ms", type=float, default=DELAY_MS, help="a request to the far store")
    parser.add_argument("--actions", nargs="*", default=list(ACTIONS))
    parser.add_argument("--systems", nargs="*", help="those to measure, instead of all")
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--parts", nargs="*", default=["local", "far", "growth", "reads"])
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-scale-") as directory:
        scratch = Path(directory)
        chosen = [one for one in systems(scratch) if not given.systems or one.name in given.systems]
        results: Figures = {}
        if "local" in given.parts:
            results["local"] = measure_sizes(
                chosen, given.sizes, given.rounds, given.actions, scratch
            )
        if "far" in given.parts:
            results["far"] = measure_requests(chosen, given.far_sizes, given.actions, given.ms)
        if "growth" in given.parts:
            results["growth"] = measure_growth(chosen[0], given.commits, scratch)
        if "reads" in given.parts:
            results["reads"] = measure_reads(chosen, given.rounds, 1_000, given.rows, scratch)
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "scale.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    show(results)
    python = ROOT / ".venv-peers" / "bin" / "python"
    if python.exists() and "local" in results:
        subprocess.run([str(python), str(HERE / "plot.py"), str(path)], check=True)


if __name__ == "__main__":
    main()

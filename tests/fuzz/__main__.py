"""Fuzz what Lakebed parses.

    cd tests && python -m fuzz --list
    cd tests && python -m fuzz --seconds 60                every target, one after the other
    cd tests && python -m fuzz --seconds 600 predicate sql
    cd tests && python -m fuzz --short 200 --json          what `make test` does
    cd tests && python -m fuzz --input FILE predicate      one input again

With atheris, mutations are guided by the coverage of Lakebed's modules; without it they are blind.
Findings are printed, and written to `build/fuzz`; a mended one belongs in `tests/fuzz/corpus`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzz.targets import Target

_PATIENCE_S = 240  # for the first lakes and imports, and the last input
BUILD = Path(__file__).parents[2] / "build" / "fuzz"


def _targets() -> Any:
    """Import the targets, instrumented where atheris is installed."""
    if importlib.util.find_spec("atheris") is None:
        from fuzz import targets

        return targets
    import atheris

    with atheris.instrument_imports(include=["lakebed", "sqlglot.parser", "sqlglot.tokens"]):
        from fuzz import targets
    return targets


def _one(target: Target, seconds: float, folder: Path) -> None:
    """Fuzz one target in this process, guided if possible; then end it, with 1 after findings."""
    from fuzz import campaign, limits

    seeds = [*target.seeds(), *(data for _, data in campaign.kept(target))]
    campaign.warm_up(target, seeds)
    limits.install()
    places: set[str] = set()
    began, count = time.monotonic(), 0

    def call(data: bytes) -> None:
        nonlocal count
        count += 1
        found = campaign.tried(target, data)
        if found is not None and found.place not in places:
            places.add(found.place)
            campaign.report(found)
            campaign.keep(target, data, folder)
        if time.monotonic() - began > seconds:
            sys.stdout.write(
                f"{target.name}: {count:,} inputs in {seconds:.0f} s, {len(places)} findings\n"
            )
            sys.stdout.flush()
            os._exit(len(places) > 0)

    rng = random.Random()
    if importlib.util.find_spec("atheris") is None:
        while True:
            call(campaign.mutated(rng.choice(seeds), seeds, target, rng))
    import atheris

    corpus = folder / "inputs" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Leave half of the mutations to libFuzzer, and make the others by the target's words."""
        rng.seed(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return campaign.mutated(bytes(data), seeds, target, rng)[:most]

    arguments = [
        f"-max_len={target.most}",
        f"-artifact_prefix={folder}/{target.name}-",
        "-rss_limit_mb=3500",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], call, custom_mutator=mutate)
    atheris.Fuzz()


def _all(names: Sequence[str], seconds: float) -> int:
    """Fuzz targets one after the other, each in a process of its own; return how many had findings.

    A process that ends otherwise has found an input that kills it, such as a hang in C.
    """
    targets = _targets()
    targets.quiet()
    BUILD.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or targets.TARGETS:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _one(targets.TARGETS[name], seconds, BUILD)
        ends_at, found = time.monotonic() + seconds + _PATIENCE_S, 0
        while not found and time.monotonic() < ends_at:
            found, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.2)
        if not found:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        failed += code != 0
        if code not in (0, 1):
            sys.stdout.write(f"{name}: the process has ended with {code}\n")
    return failed


def _short(names: list[str], count: int, *, is_json: bool) -> int:
    """Give each target its corpus and a few mutations by a fixed seed."""
    from fuzz import campaign, limits, targets

    targets.quiet()
    chosen = [targets.TARGETS[name] for name in names or targets.TARGETS]
    for target in chosen:
        campaign.warm_up(target, target.seeds())
    limits.install()
    document: dict[str, Any] = {}
    for target in chosen:
        began = time.process_time()
        found = campaign.short(target, count)
        seconds = round(time.process_time() - began, 2)
        document[target.name] = {
            "seconds": seconds,
            "found": [
                f"{one.place}: {one.error}\n{one.data[:2000]!r}\n{one.trace}" for one in found
            ],
        }
        if not is_json:
            for one in found:
                campaign.report(one)
                campaign.keep(target, one.data, BUILD)
            sys.stdout.write(f"{target.name}: {seconds} s, {len(found)} findings\n")
    if is_json:
        sys.stdout.write(json.dumps(document))
    return sum(len(one["found"]) for one in document.values())


def _main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="names of targets; none for all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--short", type=int, metavar="COUNT", help="mutations by a fixed seed")
    parser.add_argument("--json", action="store_true", help="print the result of --short as JSON")
    parser.add_argument("--input", type=Path, help="one input again")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    given = parser.parse_args()
    if given.short is not None:
        return min(_short(given.targets, given.short, is_json=given.json), 1)
    if given.list:
        from fuzz import targets

        sys.stdout.writelines(f"{name}\n" for name in targets.TARGETS)
        return 0
    if given.input is not None:
        from fuzz import campaign, limits, targets

        target = targets.TARGETS[given.targets[0]]
        campaign.warm_up(target, target.seeds())
        limits.install()
        found = campaign.tried(target, given.input.read_bytes())
        if found is not None:
            campaign.report(found)
        return found is not None
    return min(_all(given.targets, given.seconds), 1)


if __name__ == "__main__":
    sys.exit(_main())

"""Judge Lakebed and its peers on S3 with faults; a run that was stopped goes on.

From `tests/`: `python -m judge`, or `make judge`. The systems take turns, each with the same seeds.
Each line of the results is one run; lines of other code than that which is here are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judge import commits
from judge.proxy import far_proxy
from judge.results import RESULTS, code_sum, read
from judge.trial import OWN, PEERS, Outcome, Trial, play, python_of


def _told(outcome: Outcome) -> dict[str, Any]:
    return {
        "run": outcome.trial.name,
        "system": outcome.trial.system,
        "seed": outcome.trial.seed,
        "code": code_sum(outcome.trial.system),
        "release": outcome.release,
        "counts": dict(outcome.verdict.counts),
        "errors": _errors(outcome),
        "violations": [asdict(one) for one in outcome.verdict.violations],
        "stuck": outcome.stuck,
        "is_calm": outcome.trial.is_calm,
        "killed": outcome.killed,
        "seconds": outcome.seconds,
        **outcome.faults,
    }


def _errors(outcome: Outcome) -> list[str]:
    return sorted(
        {f"{e.step.verb} {e.outcome}: {e.error}"[:200] for e in outcome.entries if e.error}
    )


def _is_there(system: str) -> str:
    """Return why a system cannot be judged here, or an empty text."""
    if not python_of(system).exists():
        return "there is no environment of the peers"
    done = subprocess.run(
        [str(python_of(system)), "-c", f"import judge.adapters.{system}"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.splitlines()[-1] if done.returncode else ""


def _main() -> None:
    parser = argparse.ArgumentParser(prog="judge", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--systems", nargs="+", choices=OWN + PEERS, default=OWN + PEERS)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--keep", type=Path, help="folder for the journals of runs with violations")
    given = parser.parse_args()
    chosen = []
    for system in given.systems:
        reason = _is_there(system)
        sys.stdout.write(f"{system} is not tried: {reason}\n" if reason else "")
        chosen += [] if reason else [system]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    known = {one["run"] for one in read(given.results)}
    for system in [one for one in chosen if one in commits.SYSTEMS]:
        if f"{system} one by one" not in known:
            _play_commits(system, given.results)
    until = time.monotonic() + 60 * given.minutes
    broken = 0
    for seed in range(given.seed, given.seed + given.seeds):
        # A seed is played by all of them, or the systems would not have the same.
        if time.monotonic() > until:
            break
        trials = [
            Trial(
                system=system,
                seed=seed,
                writers=given.writers,
                steps=given.steps,
                kills=given.kills,
                versions=3,
                is_calm=given.calm,
            )
            for system in chosen
        ]
        left = [trial for trial in trials if trial.name not in known]
        if left:
            with far_proxy() as endpoint:
                violations = {one.system: _play(one, endpoint, given) for one in left}
            broken += sum(violations.get(system, 0) for system in OWN)
    sys.exit(1 if broken else 0)


def _play_commits(system: str, results: Path) -> None:
    found = {
        "run": f"{system} one by one",
        "system": system,
        "code": code_sum(system, "commits"),
        "more": ["commits"],
        "commits": commits.commit_faults(system),
    }
    with results.open("a") as file:
        file.write(json.dumps(found) + "\n")


def _play(trial: Trial, endpoint: str, given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        outcome = play(trial, endpoint, folder)
        if given.keep and (outcome.verdict.violations or outcome.stuck):
            shutil.copytree(folder, given.keep / trial.name.replace(" ", "-"), dirs_exist_ok=True)
    with given.results.open("a") as file:
        file.write(json.dumps(_told(outcome)) + "\n")
    lines = [f"{trial.name}: {outcome.seconds} s, {len(outcome.verdict.violations)} violations"]
    lines += [f"  {one.rule}: {one.told}" for one in outcome.verdict.violations]
    lines += [f"  {one}" for one in outcome.stuck]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    return len(outcome.verdict.violations)


if __name__ == "__main__":
    _main()

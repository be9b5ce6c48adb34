"""Check all models and all bugs, and record what came of it for `docs/reliability.md`.

From `tests/`: `python -m protocol`; `--short` leaves out what takes minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from protocol.checker import Checker
from protocol.models import BUGS, CASES
from protocol.results import RESULTS


def _main() -> None:
    parser = argparse.ArgumentParser(prog="protocol", description=__doc__)
    parser.add_argument("--short", action="store_true", help="leave out what takes minutes")
    given = parser.parse_args()
    cases = []
    for case in CASES:
        if case.is_long and given.short:
            continue
        found = case.check()
        sys.stdout.write(f"{case}: {found}\n")
        sys.stdout.flush()
        told = "" if found.broken is None else found.broken.invariant
        cases.append([case.name, found.states, found.steps, round(found.seconds, 1), told])
    bugs = []
    for one in BUGS:
        if one.is_long and given.short:
            continue
        broken = Checker(one.case.model(one.bug)).check(one.invariant).broken
        bugs.append([one.bug, one.invariant, 0 if broken is None else len(broken.steps)])
    day = time.strftime("%Y-%m-%d")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"day": day, "cases": cases, "bugs": bugs}), encoding="utf-8")


if __name__ == "__main__":
    _main()

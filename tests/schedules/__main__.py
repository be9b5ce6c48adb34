"""Play schedules of seeds and tell what happened.

From `tests/`, with Lakebed installed: `python -m schedules 17` tells seed 17 as a test would, made
small where it fails; `python -m schedules 17 --whole` as it is; `python -m schedules 0-999` only
says which of a range fail, and how often each rule was broken. The text of a systematic schedule
does as well as a seed: `python -m schedules 'document: append | delete ; ann 3'`.
"""

from __future__ import annotations

import argparse
import collections
import sys

from schedules.interleavings import schedule_from
from schedules.plans import THEMES, schedule_of
from schedules.play import failures, play, shrunk, simulated
from schedules.world import Schedule


def _main() -> None:
    parser = argparse.ArgumentParser(prog="schedules", description=__doc__)
    parser.add_argument("seeds", nargs="+", help="a number, a range such as 0-999, or a text")
    parser.add_argument("--theme", choices=sorted(THEMES), help="instead of the one of the seed")
    parser.add_argument("--whole", action="store_true", help="do not make it small")
    given = parser.parse_args()
    for text in given.seeds:
        if ":" in text:
            _tell(schedule_from(text), is_whole=given.whole)
            continue
        first, _, last = text.partition("-")
        if last:
            _tell_range(range(int(first), int(last) + 1), given.theme)
            continue
        _tell(schedule_of(int(first), given.theme), is_whole=given.whole)


def _tell(schedule: Schedule, *, is_whole: bool) -> None:
    with simulated():
        played = play(schedule)
        if played.violations and not is_whole:
            played = shrunk(played)
    sys.stdout.write(f"{played}\n")


def _tell_range(seeds: range, theme: str | None) -> None:
    rules: collections.Counter[str] = collections.Counter()
    for played in failures(seeds, theme):
        rules.update({one.rule for one in played.violations})
        for violation in played.violations:
            sys.stdout.write(f"{played.schedule.seed}: {violation}\n")
        sys.stdout.flush()
    for rule, count in rules.most_common():
        sys.stdout.write(f"{count} of {len(seeds)} schedules break: {rule}\n")


if __name__ == "__main__":
    _main()

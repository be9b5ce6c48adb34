"""Writers, reruns, rollbacks, readers of old versions, dying writers, protections and cleanups.

All at once, with random timing. Afterwards nothing that lives or is protected may be missing, and
nothing dead may be left.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from upkeep_lake import (
    DESCRIPTOR,
    NO_SKEW,
    DyingStore,
    Killed,
    content,
    data_keys,
    live_keys,
    new_lake,
    row,
)

import lakebed
from lakebed.errors import CommitConflictError, LakebedError, VersionNotFoundError

pytestmark = pytest.mark.thorough

RETENTION = dt.timedelta(seconds=2)
LEASE = lakebed.CommitOptions(lease=dt.timedelta(milliseconds=300))
PARTITIONS = "abcde"


class Battle:
    """The threads of one run, and what they have seen."""

    def __init__(self, root: Path, seed: int, seconds: float) -> None:
        self.lake = new_lake(root)
        self.lake.create("d", DESCRIPTOR)
        self.seed = seed
        self.end = time.monotonic() + seconds
        self.seconds = seconds
        self.errors: list[BaseException] = []
        self.done: dict[str, int] = {}
        self.protected: dict[int, list[tuple[str, int]]] = {}
        self._lock = threading.Lock()

    def open(self) -> lakebed.Dataset:
        return self.lake.open("d")

    def count(self, what: str) -> None:
        with self._lock:
            self.done[what] = self.done.get(what, 0) + 1

    def run(self) -> None:
        actors: list[Callable[[random.Random], None]] = [
            self.write,
            self.write,
            self.read,
            self.read,
            self.die,
            self.protect,
            self.clean_up,
        ]
        threads = [
            threading.Thread(target=self._loop, args=(number, actor))
            for number, actor in enumerate(actors)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _loop(self, number: int, actor: Callable[[random.Random], None]) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        try:
            while time.monotonic() < self.end and not self.errors:
                actor(dice)
                time.sleep(dice.uniform(0, 0.02))
        except BaseException as exc:  # noqa: BLE001 - told in `run`
            self.errors.append(exc)

    def rows(self, dice: random.Random) -> list[dict[str, object]]:
        chosen = dice.sample(PARTITIONS, dice.randint(1, 3))
        return [row(p, dice.randrange(10**6)) for p in chosen for _ in range(2)]

    def write(self, dice: random.Random) -> None:
        dataset = self.open()
        what = dice.choice(
            ["append", "append", "overwrite", "rerun", "rollback", "delete", "compact", "stage"]
        )
        try:
            if what == "rollback":
                dataset.rollback(version=dice.randint(max(0, dataset.version - 6), dataset.version))
            elif what == "rerun":
                dataset.rerun(self.rows(dice), run=f"run-{dice.randrange(3)}", replace_all=True)
            elif what == "compact":
                dataset.compact(dataset.where(f"p = '{dice.choice(PARTITIONS)}'"))
            elif what == "stage":
                self.stage(dataset, dice)
            elif what == "delete":
                dataset.where(f"p = '{dice.choice(PARTITIONS)}' and n < 500000").delete()
            else:
                getattr(dataset, what)(self.rows(dice))
        except CommitConflictError:
            self.count(f"{what} refused")
        except VersionNotFoundError:
            # A delete, rerun or compaction that was planned on files must find them.
            if what not in ("rollback", "stage"):
                raise
            self.count(f"{what} of what was cleaned up")
        else:
            self.count(what)

    def stage(self, dataset: lakebed.Dataset, dice: random.Random) -> None:
        lease = dt.timedelta(seconds=dice.choice([0.3, 60]))
        staged = dataset.staged.add(self.rows(dice), lease=lease)
        time.sleep(dice.uniform(0, 0.4))
        if lease.total_seconds() < 1 and dice.random() < 0.5:
            self.count("staged batch forgotten")
        elif dice.random() < 0.3:
            staged.discard()
        else:
            staged.commit()

    def read(self, dice: random.Random) -> None:
        """Read a version that was current a moment ago, or an older one."""
        began = time.monotonic()
        dataset = self.open()
        newest = dataset.version
        version = dice.choice([newest, newest, dice.randint(0, newest)])
        try:
            pinned = dataset.at(version=version)
        except VersionNotFoundError:
            self.count("read of what was cleaned up")
            return
        time.sleep(dice.uniform(0, RETENTION.total_seconds() / 3))
        try:
            content(pinned)
        except LakebedError as exc:
            took = time.monotonic() - began
            # An old version may go while it is read; what was current stays for the retention.
            if version == newest and took < RETENTION.total_seconds():
                exc.add_note(f"version {version}, after {took:.2f} s")
                raise
            self.count("late read")
        else:
            self.count("read")

    def die(self, dice: random.Random) -> None:
        dying = DyingStore(self.lake.store, nth=dice.randint(1, 14), after=dice.random() < 0.5)
        try:
            lakebed.Repository(dying).open("d").with_options(commit=LEASE).append(self.rows(dice))
        except Killed:
            self.count("death")
        except CommitConflictError:
            self.count("append after its lease")

    def protect(self, dice: random.Random) -> None:
        dataset = self.open()
        version = dice.randint(max(0, dataset.version - 3), dataset.version)
        time.sleep(dice.uniform(0, 0.3))
        if len(self.protected) > 5:
            chosen = dice.choice(sorted(self.protected))
            del self.protected[chosen]
            dataset.protections.remove(version=chosen)
            self.count("unprotect")
            return
        try:
            dataset.protections.add(version=version, reason="under fire")
        except VersionNotFoundError:
            self.count("protect of what was cleaned up")
            return
        self.protected[version] = content(self.open().at(version=version))
        self.count("protect")

    def clean_up(self, dice: random.Random) -> None:
        if dice.random() < 0.2:
            dying = DyingStore(self.lake.store, nth=dice.randint(5, 60), after=dice.random() < 0.5)
            try:
                lakebed.Repository(dying).open("d").cleanup(
                    RETENTION, dry_run=False, clock_skew=NO_SKEW
                )
            except Killed:
                self.count("death of a cleanup")
            return
        report = self.open().cleanup(RETENTION, dry_run=False, clock_skew=NO_SKEW)
        self.count("cleanup")
        for reason, count in report.counts.items():
            self.done[f"deleted: {reason}"] = self.done.get(f"deleted: {reason}", 0) + count

    def check(self) -> None:
        dataset = self.open()
        report = dataset.check(deep=True)
        assert report.problems == (), report.problems[:3]
        for version, rows in self.protected.items():
            assert content(dataset.at(version=version)) == rows
        before = content(dataset)
        time.sleep(0.5)  # the leases of the dead are over
        dataset.cleanup("0s", dry_run=False, clock_skew=NO_SKEW)
        again = dataset.cleanup("0s", dry_run=False, clock_skew=NO_SKEW)
        assert again.files == ()
        assert content(dataset) == before
        kept = live_keys(dataset).union(
            *(live_keys(dataset.at(version=version)) for version in self.protected)
        )
        assert data_keys(self.lake.store) == kept
        assert dataset.check(deep=True).problems == ()


def fight(tmp_path: Path, seed: int, seconds: float) -> dict[str, int]:
    battle = Battle(tmp_path / f"{seed}", seed, seconds)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    battle.run()
    battle.check()
    return battle.done


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_lives_is_deleted_and_nothing_dead_is_left(tmp_path: Path, seed: int) -> None:
    wanted = {"read", "cleanup", "death", "protect", "deleted: superseded"}
    done: set[str] = set()
    for fights in range(8):  # what threads get to do in one is chance
        done |= set(fight(tmp_path / str(fights), seed + 1000 * fights, seconds=4))
        if wanted <= done:
            return
    raise AssertionError(wanted - done)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_over_fifty_seeds(tmp_path: Path, seed: int) -> None:
    fight(tmp_path, seed, seconds=4)


@pytest.mark.long
@pytest.mark.xdist_group("machine")
def test_for_a_minute(tmp_path: Path) -> None:
    done = fight(tmp_path, 7, seconds=60)

    assert done["deleted: abandoned"] > 10
    assert done["deleted: superseded"] > 100

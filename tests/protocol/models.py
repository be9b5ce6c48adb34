"""The models with their bounds, the number of states of each, and the bugs that they find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.checker import Checked, Checker, Model
from protocol.cleanups import Cleanups
from protocol.commits import Commits
from protocol.erasures import Erasures
from protocol.folds import Folds
from protocol.groups import Groups
from protocol.names import Head, Names
from protocol.publications import SHOWN, Publications
from protocol.stages import Stages


@dataclass(frozen=True)
class Case:
    """A model with bounds.

    Attributes:
        name: What meets whom.
        kind: The model.
        bounds: Its bounds.
        states: The number of distinct states: a model that shrinks must not go unnoticed.
        unmet: Probes of the model that these bounds cannot meet.
        is_long: Whether it takes minutes.
    """

    name: str
    kind: Callable[..., Model]
    bounds: Mapping[str, Any]
    states: int
    unmet: frozenset[str] = frozenset()
    is_long: bool = False

    def model(self, bug: str = "") -> Model:
        """Return the model, perhaps with a bug in it."""
        return self.kind(bug, **self.bounds)

    def check(self) -> Checked:
        """Visit all states."""
        return Checker(self.model()).check()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Seeded:
    """A bug that is put into a model, with the case in which it is found."""

    bug: str
    case: Case
    invariant: str

    @property
    def is_long(self) -> bool:
        """True if the case takes minutes."""
        return self.case.is_long

    def __str__(self) -> str:
        return self.bug


_OLD = Head("old", ("first",))
_LOST_RACE = "a publisher that loses a race for the table"
_CHANGED_NOTE = "a note that has changed meanwhile"
_LATE_NOTE = "a cleanup that keeps what a publisher has noted since it began"
_GIVEN_UP = "a publisher whose version was given up"
_LEAVES = "an erasure that leaves something"
_TAKES_OTHERS = "an erasure that takes out a file of another writer"
_REFUSES = "a refusal by an erasure"
_APPEND, _OVERWRITE = ("append", "a"), ("overwrite", "a")

CASES = (
    Case(
        "commits: an append and an overwrite, with a crash and a lost answer",
        Commits,
        {"crashes": 1, "losses": 1},
        8_095,
    ),
    Case(
        "commits: an overwrite and a delete, with two lost answers",
        Commits,
        {"losses": 2, "lates": 2, "verbs": (_OVERWRITE, ("delete", "a"))},
        16_441,
        frozenset({"a killed writer whose commit has landed"}),
    ),
    Case(
        "commits: an append and an overwrite, with a crash and two lost answers",
        Commits,
        {"crashes": 1, "losses": 2},
        56_065,
        is_long=True,
    ),
    Case(
        "commits: two appends and an overwrite, with a crash and a lost answer",
        Commits,
        {"crashes": 1, "losses": 1, "verbs": (_APPEND, _OVERWRITE, _APPEND)},
        953_896,
        is_long=True,
    ),
    Case(
        "cleanups: a cleanup beside a merge of metadata",
        Cleanups,
        {"others": ("merge_facts",)},
        3_379,
    ),
    Case(
        "cleanups: a cleanup with nothing else to delete beside a merge of metadata",
        Cleanups,
        {"others": ("merge_facts",), "is_clean": True},
        751,
    ),
    Case("cleanups: a cleanup beside a rollback", Cleanups, {"others": ("rollback",)}, 1_363),
    Case(
        "cleanups: a cleanup beside an overwrite",
        Cleanups,
        {"others": ("overwrite",)},
        24_690,
        is_long=True,
    ),
    Case(
        "cleanups: a cleanup whose clock is ahead beside an overwrite, with a crash",
        Cleanups,
        {"others": ("overwrite",), "skews": {"clean0": 9}, "crashes": 1, "ticks": 1},
        10_122,
        is_long=True,
    ),
    Case(
        "cleanups: two cleanups beside a rollback, with a crash",
        Cleanups,
        {"others": ("rollback",), "cleanups": 2, "crashes": 1, "ticks": 1},
        144_900,
        is_long=True,
    ),
    Case(
        "erasures: an erasure beside a rollback",
        Erasures,
        {"others": ("rollback",)},
        1_033,
        frozenset({_LEAVES, _TAKES_OTHERS}),
    ),
    Case(
        "erasures: an erasure beside a merge of metadata",
        Erasures,
        {"others": ("merge_facts",)},
        1_079,
        frozenset({_LEAVES, _TAKES_OTHERS}),
    ),
    Case(
        "erasures: an erasure beside a compaction, with a crash",
        Erasures,
        {"others": ("compact",), "crashes": 1},
        4_433,
    ),
    Case(
        "erasures: an erasure beside an overwrite",
        Erasures,
        {"others": ("overwrite",)},
        2_484,
        frozenset({_TAKES_OTHERS}),
    ),
    Case(
        "erasures: an erasure beside a cleanup",
        Erasures,
        {"others": (), "cleanups": 1},
        18_460,
        frozenset({_LEAVES, _TAKES_OTHERS, _REFUSES}),
    ),
    Case(
        "erasures: two erasures, with a crash",
        Erasures,
        {"others": (), "erasures": 2, "crashes": 1},
        47_607,
        frozenset({_TAKES_OTHERS, _REFUSES}),
        is_long=True,
    ),
    Case(
        "erasures: an erasure beside a merge of metadata, both of which may stand still",
        Erasures,
        {"others": ("merge_facts",), "ticks": 2},
        137_027,
        frozenset({_LEAVES, _TAKES_OTHERS}),
        is_long=True,
    ),
    Case(
        "erasures: an erasure beside a compaction and an overwrite",
        Erasures,
        {"others": ("compact", "overwrite")},
        413_014,
        is_long=True,
    ),
    Case(
        "stages: a commit beside a discard, with a crash and a lost answer",
        Stages,
        {"crashes": 1, "losses": 1, "verbs": ("promote", "discard")},
        1_221,
        frozenset({"two acknowledgements of one commit"}),
    ),
    Case(
        "stages: a stage beside a commit, with a crash and two lost answers",
        Stages,
        {"crashes": 1, "losses": 2, "verbs": ("stage", "promote"), "is_staged": False},
        769,
    ),
    Case(
        "stages: two commits beside a discard, with a crash and a lost answer",
        Stages,
        {"crashes": 1, "losses": 1},
        16_707,
        is_long=True,
    ),
    Case(
        "names: a hand-over beside an append, with a crash",
        Names,
        {"crashes": 1, "verbs": (("move", "msgpack"), ("append",)), "begins_with": _OLD},
        3_232,
    ),
    Case(
        "names: a drop beside an append and a creation",
        Names,
        {
            "verbs": (("append",), ("drop",), ("make", "json", True)),
            "begins_with": _OLD,
        },
        1_937,
    ),
    Case(
        "names: two drops beside a creation",
        Names,
        {"verbs": (("drop",), ("drop",), ("make", "json", True)), "begins_with": _OLD},
        5_164,
    ),
    Case(
        "names: two creations with different keys",
        Names,
        {},
        727,
    ),
    Case(
        "names: two creations with different keys, with a crash and a lost answer",
        Names,
        {"crashes": 1, "losses": 1},
        31_996,
        is_long=True,
    ),
    Case(
        "folds: an append and an overwrite that fold, with a lost answer",
        Folds,
        {"losses": 1, "cleans": False},
        2_420,
        frozenset({"a merge of leaves"}),
    ),
    Case(
        "folds: an append beside a cleanup",
        Folds,
        {"verbs": ("append",)},
        274,
        frozenset(
            {
                "a fold beside a commit",
                "a fold of files that were removed meanwhile",
                "a merge of leaves",
            }
        ),
    ),
    Case("folds: an append and an overwrite beside a cleanup", Folds, {}, 26_934, is_long=True),
    Case(
        "groups: two threads, with a crash or an interrupt and a lost answer",
        Groups,
        {"crashes": 1, "losses": 1, "verbs": ("overwrite", "append")},
        2_481,
    ),
    Case(
        "groups: two threads and another process, with a lost answer",
        Groups,
        {"losses": 1},
        40_747,
        frozenset({"a leader that is interrupted, and whose group goes on"}),
        is_long=True,
    ),
    Case(
        "groups: two threads and another process, with a crash or an interrupt and a lost answer",
        Groups,
        {"crashes": 1, "losses": 1},
        154_148,
        is_long=True,
    ),
    Case(
        "publications: two publishers of Delta, one of them after a commit, with a crash",
        Publications,
        {"crashes": 1},
        5_055,
    ),
    Case(
        "publications: two publishers of a new table of Delta, one of them after a commit",
        Publications,
        {"is_new": True},
        2_440,
    ),
    Case(
        "publications: two publishers of Iceberg, one of them after a commit",
        Publications,
        {"kind": "iceberg"},
        14_364,
    ),
    Case(
        "publications: a publisher of Delta beside a commit and a cleanup, with a lost answer",
        Publications,
        {"losses": 1, "others": ("publish", "commit", "clean")},
        17_233,
    ),
    Case(
        "publications: a publisher of Delta beside a cleanup and a reader",
        Publications,
        {"others": ("publish", "clean", "read"), "retention": 1, "ticks": 1},
        2_698,
        frozenset({_LOST_RACE, _CHANGED_NOTE, _LATE_NOTE, _GIVEN_UP}),
    ),
    Case(
        "publications: a publisher of Delta beside a commit, a cleanup and a reader",
        Publications,
        {"others": ("publish", "commit", "clean", "read"), "retention": 1, "ticks": 1},
        46_665,
        frozenset({_LOST_RACE, _CHANGED_NOTE}),
        is_long=True,
    ),
    Case(
        "publications: two publishers of Delta whose leases end, one of them after a commit",
        Publications,
        {"ticks": 1},
        81_526,
        is_long=True,
    ),
    Case(
        "publications: two publishers of Delta, with a crash and a lost answer",
        Publications,
        {"crashes": 1, "losses": 1},
        160_676,
        is_long=True,
    ),
    Case(
        "publications: two publishers of Iceberg, with a lost answer",
        Publications,
        {"kind": "iceberg", "losses": 1},
        572_950,
        is_long=True,
    ),
    Case(
        "publications: a publisher of Iceberg beside a commit and a cleanup, with a lost answer",
        Publications,
        {"kind": "iceberg", "losses": 1, "others": ("publish", "commit", "clean")},
        34_074,
        is_long=True,
    ),
    Case(
        "publications: two publishers of Delta, one of them after a commit, beside a cleanup",
        Publications,
        {"others": ("publish", "commit_and_publish", "clean")},
        479_430,
        is_long=True,
    ),
)
BY_NAME = {case.name: case for case in CASES}

BUGS = tuple(
    Seeded(bug, BY_NAME[name], invariant)
    for kind, cases in {
        Commits: {"": "commits: an append and an overwrite, with a crash and a lost answer"},
        Cleanups: {
            "": "cleanups: a cleanup beside an overwrite",
            "a cleanup in between is not noticed": "cleanups: a cleanup beside a merge of metadata",
            "a cleanup deletes without a commit": "cleanups: a cleanup beside a rollback",
            "a rollback restores files without a look": "cleanups: a cleanup beside a rollback",
            "a cleanup does not read the head again after its commit": (
                "cleanups: a cleanup beside a rollback"
            ),
            "a cleanup makes no commit for what a stalled one may name": (
                "cleanups: a cleanup with nothing else to delete beside a merge of metadata"
            ),
        },
        Erasures: {
            "": "erasures: an erasure beside a rollback",
            "an erasure deletes segments of writers at work": (
                "erasures: an erasure beside a compaction, with a crash"
            ),
            "an erasure leaves facts of files that no version has": (
                "erasures: an erasure beside a cleanup"
            ),
        },
        Stages: {
            "": "stages: a commit beside a discard, with a crash and a lost answer",
            "a stage deletes what was committed": (
                "stages: a stage beside a commit, with a crash and two lost answers"
            ),
            "a commit of a staged batch does not look for an earlier one": (
                "stages: a stage beside a commit, with a crash and two lost answers"
            ),
        },
        Names: {
            "": "names: two creations with different keys",
            "a dropped namesake is not noticed": "names: a drop beside an append and a creation",
            "the store creates what exists": (
                "names: two creations with different keys, with a crash and a lost answer"
            ),
        },
        Folds: {
            "": "folds: an append and an overwrite that fold, with a lost answer",
            "a fold lands after a cleanup": "folds: an append and an overwrite beside a cleanup",
            "a fold merges segments up to the horizon": (
                "folds: an append and an overwrite beside a cleanup"
            ),
        },
        Publications: {
            "": "publications: two publishers of Delta, one of them after a commit, with a crash",
            **dict.fromkeys(
                (bug for bug, rule in Publications.bugs.items() if rule == SHOWN),
                "publications: a publisher of Delta beside a commit and a cleanup, with a lost answer",
            ),
            **dict.fromkeys(
                (bug for bug in Publications.bugs if "metadata" in bug),
                "publications: two publishers of Iceberg, one of them after a commit",
            ),
            "a note forgets the versions that readers hold": (
                "publications: a publisher of Delta beside a cleanup and a reader"
            ),
        },
        Groups: {"": "groups: two threads, with a crash or an interrupt and a lost answer"},
    }.items()
    for bug, invariant in kind.bugs.items()
    for name in (cases.get(bug, cases[""]),)
)

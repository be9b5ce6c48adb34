"""The model of a name: creators that race, drops, and the move of a head between its two keys.

It stands for `lakebed.state.creation`, `moving` and `reader`: what a reader makes of two heads, the
mark of a creator, the steps of a hand-over, which any writer takes, and the removal of heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from protocol.checker import (
    LOST,
    Model,
    Next,
    Program,
    Value,
    View,
    choose,
    create,
    delete_if,
    get,
    replace,
)
from protocol.commits import LANDS_ONCE

KEYS = ("json", "msgpack")
NEW, UNCONFIRMED = "new", "unconfirmed"  # marks of a head
ONE_CREATOR = "at most one of several creators is acknowledged, and its dataset stays"
ONCE = "what is acknowledged stays in the history, unless it was dropped"
SAME = "a commit goes to the dataset that its writer has seen"
DROPPED = "what was dropped is gone"
MOST_LOOKS = 4


class Head(NamedTuple):
    """A head: the dataset, its commits, and the marks of creations and hand-overs.

    Attributes:
        dataset: The creator, which stands for the time of creation.
        commits: The commits, oldest first.
        mark: `NEW` until its creator has the name, `UNCONFIRMED` until a hand-over is confirmed.
        moves_to: The key that it moves to.
        moved: The hand-over that it comes from; each one is unique.
    """

    dataset: str
    commits: tuple[str, ...] = ()
    mark: str = ""
    moves_to: str = ""
    moved: str = ""

    @property
    def claim(self) -> int:
        """The rank beside a head of another dataset."""
        if self.mark == UNCONFIRMED:
            return -1
        if not self.commits:
            return 0 if self.mark == NEW else 1
        return 2 if self.moved else 3


class Found(NamedTuple):
    """The current head, with the key of it, and the stale one if there is one."""

    key: str
    head: Head
    stale: Head | None = None

    @property
    def stale_key(self) -> str:
        """The key of the stale head."""
        return _other(self.key)

    @property
    def is_settled(self) -> bool:
        """True if no hand-over is in progress."""
        return self.stale is None and not self.head.moves_to


class Names(Model):
    """Actors at one name; `verbs` are their programs, with the key that they prefer."""

    name: ClassVar[str] = "names"
    bugs: ClassVar[Mapping[str, str]] = {
        "a creator is told before it has the name": ONE_CREATOR,
        "the store creates what exists": ONE_CREATOR,
        "a dropped namesake is not noticed": SAME,
    }
    verbs: tuple[tuple[str, ...], ...] = (("make", "json"), ("make", "msgpack"))
    begins_with: Head | None = None

    def objects(self) -> Mapping[str, Value]:
        """Begin with a free name, or with a dataset."""
        return {} if self.begins_with is None else {"json": self.begins_with}

    def actors(self) -> Mapping[str, Next]:
        """Return the actors."""
        names = ("ann", "bob", "cyn")
        return {
            name: Next(verb, (name, *args))
            for name, (verb, *args) in zip(names, self.verbs, strict=False)
        }

    # --- Reading

    def _read(self) -> Program:
        """Read one key and then the other, as a reader that knows nothing does."""
        json = yield get("json")
        if (
            json is not None
            and json.mark == ""
            and json.commits
            and not json.moves_to
            and not json.moved
        ):
            return Found("json", json)
        msgpack = yield get("msgpack")
        if json is None and (msgpack is None or not msgpack.commits):
            json = yield get("json")
        if json is not None and msgpack is not None:
            return _newer(json, msgpack)
        if json is None and msgpack is None:
            return None
        return Found("json", json) if json is not None else Found("msgpack", msgpack)

    def _find(self) -> Program:
        """Return the head; one that is unconfirmed and alone twice is none."""
        first = yield from self._read()
        while first is not None and first.stale is None and first.head.mark == UNCONFIRMED:
            again = yield from self._read()
            if again == first:
                return None
            first = again
        return first

    def _settled(self, me: str, when: str) -> Program:
        """Finish a hand-over that is in progress, and return the head after it."""
        found = yield from self._find()
        looks = 0
        while found is not None and not found.is_settled:
            looks += 1
            if looks > MOST_LOOKS or not (yield from self._advance(f"{me} {when}{looks}", found)):
                break
            found = yield from self._find()
        return found

    def _advance(self, unique: str, found: Found) -> Program:
        head, stale = found.head, found.stale
        if stale is not None and stale.moves_to == found.key:
            if head.mark == UNCONFIRMED:
                if (yield get(found.stale_key)) != stale:
                    return True
                yield replace(found.key, head._replace(mark=""), head)
            else:
                yield delete_if(found.stale_key, stale)
            return True
        if stale is not None and _is_twin(head, stale):
            yield replace(found.stale_key, stale._replace(moves_to=found.key), stale)
            return True
        if head.moves_to:
            new = head._replace(mark=UNCONFIRMED, moves_to="", moved=unique)
            if stale is None:
                answer = yield create(head.moves_to, new)
            else:
                answer = yield replace(head.moves_to, new, stale)
            if answer is LOST:
                return False  # an error, after which the commit is tried again
            if answer:
                now = yield get(found.key)
                if now is None or not now.moves_to or now.dataset != head.dataset:
                    yield delete_if(head.moves_to, new)
            return True
        return False

    # --- Programs

    def make(self, me: str, key: str, commits: bool = False) -> Program:
        """Create a dataset: put a head with a mark, look for the other one, remove the mark."""
        if (yield from self._find()) is not None:
            return ("refused", "exists")
        return Next("put_first", (me, key, commits, 0))

    def put_first(self, me: str, key: str, commits: bool, count: int) -> Program:
        """Put the first head; after a lost answer, that of another dataset."""
        own = Head(f"{me}{count or ''}", (), NEW)
        if self.bug == "the store creates what exists":
            answer = True if (yield replace(key, own, (yield get(key)))) else LOST
        else:
            answer = yield create(key, own)
        if answer is LOST:
            return Next("put_first", (me, key, commits, count + 1))
        return Next("claim", (me, key, commits, own if answer else None, count))

    def claim(self, me: str, key: str, commits: bool, own: Head | None, count: int) -> Program:
        """Remove the mark, unless another dataset has the name."""
        found = yield from self._settled(me, "claim")
        mine = tuple(f"{me}{n or ''}" for n in range(count + 1))
        if found is None or found.head.dataset not in mine:
            if own is not None:
                yield delete_if(key, own)
            return ("refused", "taken")
        done = ("created", found.head.dataset)
        then = Next("append", (me, found.head.dataset)) if commits else done
        if self.bug == "a creator is told before it has the name":
            return then
        if found.head.mark != NEW:
            return then
        answer = yield replace(found.key, found.head._replace(mark=""), found.head)
        if answer is LOST and (yield choose("look again", "give up")) == "give up":
            return ("unknown",)
        return then if answer is True else Next("claim", (me, key, commits, own, count))

    def append(self, me: str, created: str = "") -> Program:
        """Read the base, and commit to it."""
        base = yield from self._settled(me, "base")
        if base is None:
            return ("refused", "not found")
        return Next("commit", (me, base.head.dataset, False, created))

    def commit(self, me: str, dataset: str, may_land: bool, created: str) -> Program:
        """Finish a hand-over, look for the commit, and swap the head."""
        found = yield from self._settled(me, "commit")
        if found is None:
            return ("refused", "not found")
        head = found.head
        if me in head.commits:
            return ("acknowledged", head.dataset)
        if head.dataset != dataset and self.bug != "a dropped namesake is not noticed":
            return ("unknown",) if may_land else ("refused", "another dataset")
        if not found.is_settled:
            return Next("commit", (me, dataset, may_land, created))
        after = head._replace(commits=(*head.commits, me), mark="", moved="")
        answer = yield replace(found.key, after, head)
        if answer is True:
            if found.stale is not None:
                yield delete_if(found.stale_key, found.stale)
            return ("acknowledged", dataset)
        return Next("commit", (me, dataset, may_land or answer is LOST, created))

    def move(self, me: str, key: str) -> Program:
        """Announce a hand-over by a commit, and finish it."""
        found = yield from self._settled(me, "begin")
        if found is None or found.key == key:
            return ("refused", "nothing to move")
        head = found.head
        after = head._replace(commits=(*head.commits, me), moves_to=key, mark="", moved="")
        answer = yield replace(found.key, after, head)
        if answer is not True:
            return ("unknown",) if answer is LOST else Next("move", (me, key))
        yield from self._settled(me, "end")
        return ("acknowledged", head.dataset)

    def drop(self, me: str) -> Program:
        """Remove the heads of the dataset, the stale one first, whatever others commit to it."""
        found = yield from self._find()
        if found is None:
            return ("refused", "not found")
        return Next("remove", (me, found.head.dataset, found, False))

    def remove(self, me: str, dataset: str, found: Found, has_removed: bool) -> Program:
        """Remove both heads if they are unchanged, and look again."""
        is_removed = False
        if found.stale is not None and not _is_twin(found.head, found.stale):
            is_removed = yield delete_if(found.stale_key, found.stale)
            if not is_removed:
                return Next("look", (me, dataset, has_removed))
        is_head_removed = yield delete_if(found.key, found.head)
        return Next("look", (me, dataset, has_removed or is_removed or is_head_removed))

    def look(self, me: str, dataset: str, has_removed: bool) -> Program:
        """Look whether anything is left of the dataset."""
        found = yield from self._find()
        if found is None:
            if not has_removed:
                return ("refused", "not found")
            for key in KEYS:
                left = yield get(key)
                if left is not None and left.dataset == dataset:
                    return Next("remove", (me, dataset, Found(key, left), True))
            return ("dropped", dataset)
        if found.head.dataset != dataset:
            return ("dropped", dataset) if has_removed else ("refused", "another dataset")
        return Next("remove", (me, dataset, found, has_removed))

    # --- Rules

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            LANDS_ONCE: _lands_once,
            ONE_CREATOR: _one_creator,
            ONCE: _acknowledged,
            SAME: _same,
            DROPPED: _dropped,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        verbs = {verb for verb, *_ in self.verbs}
        met: dict[str, object] = {}
        if [verb for verb, *_ in self.verbs].count("make") > 1:
            met["two new heads at one name"] = lambda _step, _before, after: (
                len(after.objects) == 2
                and len({head.dataset for head in after.objects.values()}) == 2
            )
        if "move" in verbs:
            met["a hand-over that its writer does not end"] = lambda step, _before, after: (
                step.actor != "ann" and len(after.objects) == 2 and after.outcomes["ann"] is None
            )
        if verbs >= {"drop", "make"}:
            met["a name that is taken again"] = lambda _step, before, after: (
                not before.objects and bool(after.objects)
            )
        return met


def _other(key: str) -> str:
    return KEYS[key == "json"]


def _is_twin(head: Head, stale: Head) -> bool:
    return stale.dataset != head.dataset and 0 <= stale.claim < 2


def _newer(json: Head, msgpack: Head) -> Found:
    """Return the current one of two heads, as every reader decides."""
    if json.dataset == msgpack.dataset:
        target = json.moves_to or msgpack.moves_to or "json"
        ages = ((len(json.commits), target == "json"), (len(msgpack.commits), target == "msgpack"))
        is_json = ages[0] > ages[1]
    else:
        claims = [(one.claim, not one.moves_to) for one in (json, msgpack)]
        is_json = claims[0] > claims[1] or (
            claims[0] == claims[1] and json.dataset < msgpack.dataset
        )
    return Found("json", json, msgpack) if is_json else Found("msgpack", msgpack, json)


def _current(view: View) -> Head | None:
    json, msgpack = view.objects.get("json"), view.objects.get("msgpack")
    if json is not None and msgpack is not None:
        return _newer(json, msgpack).head
    head = json or msgpack
    return None if head is None or head.mark == UNCONFIRMED else head


def _lands_once(view: View) -> str:
    head = _current(view)
    commits = () if head is None else head.commits
    return "" if len(commits) == len(set(commits)) else f"{commits}"


def _one_creator(view: View) -> str:
    made = {dataset for _, (dataset,) in view.ended("created")}
    gone = {dataset for _, (dataset,) in view.ended("dropped")}
    if len(made - gone) > 1:
        return f"{sorted(made)} were all acknowledged"
    head = _current(view)
    at_work = any(
        outcome is None or outcome[0] == "killed" for name, outcome in view.outcomes.items()
    )
    for dataset in made - gone:
        if not at_work and (head is None or head.dataset != dataset):
            return f"{dataset} was acknowledged, and {head} has the name"
    return ""


def _acknowledged(view: View) -> str:
    head = _current(view)
    gone = {dataset for _, (dataset,) in view.ended("dropped")}
    if any(outcome is None or outcome[0] == "killed" for outcome in view.outcomes.values()):
        return ""  # a drop may be at work
    for name, (dataset,) in view.ended("acknowledged"):
        if dataset not in gone and (head is None or name not in head.commits):
            return f"{name} was acknowledged, and the head is {head}"
    return ""


def _same(view: View) -> str:
    for key, head in view.objects.items():
        for name, (dataset,) in view.ended("acknowledged"):
            if name in head.commits and head.dataset != dataset and key in KEYS:
                return f"{name} saw {dataset}, and its commit is in {head}"
    return ""


def _dropped(view: View) -> str:
    head = _current(view)
    for name, (dataset,) in view.ended("dropped"):
        if head is not None and head.dataset == dataset:
            return f"{name} dropped {dataset}, and it has the name"
    return ""

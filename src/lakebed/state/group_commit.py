"""The loop around the conditional put of the head, for all commits that wait in this process.

Commits to one dataset that wait at the same time form a line. Its leader applies all that wait to
the state, one after the other: each is checked for conflicts with those before it, and gets a
version and an entry of its own, or its own refusal. One put of the head makes all of them visible.

A stable commit id makes a retry safe: before a lost race or a lost answer is reported as a
conflict, the history is searched for the id. This holds for each commit of a group. An error that
is not about one commit alone is the leader's: the others return to the line, and each leads one day.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    LakebedError,
    StorageError,
)
from lakebed.state import conflicts, history, schema_file
from lakebed.state.committing import (
    CommitOptions,
    Committed,
    Merges,
    Succession,
    Swaps,
    most_requests_of,
    put_head,
)
from lakebed.state.conflicts import Terms
from lakebed.state.history import Entry
from lakebed.state.lists import Segments
from lakebed.state.moving import settled
from lakebed.state.patience import Holding, let_through
from lakebed.state.reader import Head, read_head, read_tree
from lakebed.state.state import State
from lakebed.state.waiting_line import Seat, WaitingLine, WaitingLines
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, delete_or_leave

_log = logging.getLogger(__name__)

# One put of the head makes at most so many commits, and adds so many files besides the leader's.
_MOST_TOGETHER = 256
_MOST_FILES_TOGETHER = 1024


def commit_change(
    store: Store,
    terms: Terms,
    options: CommitOptions,
    swaps: Swaps,
    before: Sequence[Callable[[], None]] = (),
) -> Committed:
    """Commit a change; only `lakebed.state.transaction` calls this.

    Args:
        store: The store that holds the dataset.
        terms: The change and its preconditions. The objects that it names exist already, or are
            written by `before`.
        options: Retry and lease settings of the commit.
        swaps: The attempts of these terms. If the commit certainly fails, it has the keys of the
            segments that were written in vain.
        before: Functions that write objects which the commit names, in any order.

    Raises:
        CommitConflictError: A commit since the base changed a partition in its scope or read in
            one of the raw files, or a commit since a read changed the data that was read, or the
            race was lost until the deadline; nothing has changed.
        PreconditionFailedError: The dataset is no longer in the state that the change requires;
            nothing has changed.
        CommitUnknownError: The store stopped answering. The objects that the change names may be
            live.
        StorageError: The store failed before the change could become visible.

    Cost:
        A read of the head for each attempt, one PUT, one conditional PUT; those that wait in this
        process share them.
    """
    member = Member(terms, options, swaps)
    line = LINES.of(store.group_key, terms.base.name)
    try:
        opening = _Opening(store, member)
        # Otherwise others lead, and this commit joins them once it is ready.
        if not store.is_near and line.try_lead(member):
            opening.do(before, prepares=line.is_calm)
        else:
            _do_all(before, store)
        while not member.is_done:
            leads = line.wait(member, member.deadline)
            if not member.is_done:
                _lead(store, member, line if leads else None, opening)
    finally:
        line.leave(member)
    return member.result(store)


def _do_all(tasks: Sequence[Callable[[], object]], store: Store) -> None:
    """Call independent functions, at once if their requests take long."""
    for _ in at_once(lambda task: task(), tasks, most_requests_of(store)):
        pass


class Member(Seat):
    """A commit among those that wait in this process.

    Attributes:
        terms: The change and its preconditions.
        options: Retry and lease settings.
        swaps: The puts that would make it visible.
        deadline: When it is given up, by the monotonic clock.
        attempts: Number of attempts that it took part in.
        is_late: Whether the current attempt must be the last look.
        trouble: The error that left the last attempt undecided.
        merges: The segments that it merged when it led.
        landed: The states before and after the group that it led.
    """

    def __init__(self, terms: Terms, options: CommitOptions, swaps: Swaps) -> None:
        super().__init__()
        self.terms = terms
        self.options = options
        self.swaps = swaps
        self.deadline = time.monotonic() + options.deadline_s
        self.attempts = 0
        self.is_late = False
        self.trouble: StorageError | None = None
        self.merges = Merges()
        self.landed: tuple[State, State] | None = None
        self._committed: Committed | None = None
        self._error: Exception | None = None
        self._wait_s = options.first_wait_ms / 1000

    def begin(self) -> None:
        """Begin an attempt that it leads; wait before all but the first."""
        if self.attempts and time.monotonic() < self.deadline:
            self._rest()
        self.is_late = self.attempts > 0 and time.monotonic() >= self.deadline
        if self.attempts:
            self.merges.begin_again()

    def _rest(self) -> None:
        """Wait at random, each time between the first wait and three times the last one.

        Such waits are decorrelated: writers that met once do not meet again.
        """
        longest_s = self.options.longest_wait_ms / 1000
        first_s = min(self.options.first_wait_ms / 1000, longest_s)
        self._wait_s = min(longest_s, random.uniform(first_s, max(first_s, 3 * self._wait_s)))
        wait_s = min(self._wait_s, max(0.0, self.deadline - time.monotonic()))
        _log.warning(
            "commit retries dataset=%s attempt=%d wait_ms=%.0f",
            self.terms.base.name,
            self.attempts,
            wait_s * 1000,
        )
        time.sleep(wait_s)

    def look(self, store: Store, head: Head, since: Sequence[Entry]) -> bool:
        """Look for the commit itself in the history; return whether it is there.

        The look comes after the last put, so a commit that it does not find has not landed. The
        head that shows it is made durable: its put may have failed right after it was visible.

        Args:
            store: The store that holds the dataset.
            head: The current head.
            since: The entries since the base.

        Raises:
            LakebedError: The commit is given up.
        """
        commit_id = self.terms.change.commit_id
        own = next((entry for entry in since if entry.commit_id == commit_id), None)
        if own is not None:
            try:
                store.make_durable(head.key)
            except StorageError as exc:
                self._give_up(self._unknown(exc), exc)
                return True
            self.succeed(own, head.state if head.state.version == own.version else None)
            return True
        self.swaps.settle(head)
        if self.is_late:
            raise self.trouble or self._lost(head.state.version)
        self.trouble = None
        return False

    def _lost(self, version: int) -> CommitConflictError:
        return CommitConflictError(
            f"Commit to {self.terms.base.name!r} lost {self.attempts - 1} races for the head in "
            f"{self.options.deadline_s:g} s.",
            hint="Run fewer writers at a time, or set a longer deadline.",
            expected=self.terms.base.version,
            actual=version,
        )

    def succeed(self, entry: Entry, state: State | None) -> None:
        """Record that the commit is made."""
        self._committed = Committed(entry, state, attempts=self.attempts)
        self.is_done = True

    def fail(self, exc: Exception) -> None:
        """Record that the commit is refused or unknown, unless another attempt may succeed."""
        if isinstance(exc, StorageError) and exc.retryable and not self.is_late:
            self.trouble = exc
            return
        # A conditional put cannot land on a missing head.
        if self.swaps.may_land and not isinstance(exc, DatasetNotFoundError):
            self._give_up(self._unknown(exc), exc)
        else:
            self._give_up(exc)

    def _give_up(self, error: Exception, cause: Exception | None = None) -> None:
        error.__cause__ = cause or error.__cause__
        self._error = error
        self.is_done = True

    def _unknown(self, cause: Exception) -> CommitUnknownError:
        commit_id = self.terms.change.commit_id
        reason = cause.message if isinstance(cause, LakebedError) else repr(cause)
        return CommitUnknownError(
            f"The store did not report the outcome of commit {commit_id} to "
            f"{self.terms.base.name!r}: {reason}",
            hint="Look for this commit id in the dataset's history before writing again.",
            commit_id=commit_id,
        )

    def result(self, store: Store) -> Committed:
        """Return the commit, or raise the error that refuses it.

        Cost:
            Nothing; one DELETE if an earlier attempt has written segments; a fold if the buffer of
            a tree is full.
        """
        if self.landed is not None:
            self._tidy(store, *self.landed)
        if self._error is not None:
            raise self._error
        committed = self._committed
        assert committed is not None
        _log.info(
            "committed dataset=%s version=%d operation=%s batch_id=%s rows=%d attempt=%d",
            self.terms.base.name,
            committed.entry.version,
            committed.entry.operation,
            committed.entry.batch_id,
            committed.entry.row_count,
            self.attempts,
        )
        return committed

    def _tidy(self, store: Store, before: State, after: State) -> None:
        """Fold the buffer of a tree if it is full, and delete what earlier attempts have written."""
        if after.is_tree:
            from lakebed.state.tree.stored_folds import fold_after

            fold_after(store, before, after)
        if self.swaps.unused and not self.swaps.may_land:
            named = {*after.side_keys}
            delete_or_leave(store, [key for key in self.swaps.unused if key not in named])
            self.swaps.unused.clear()


# Of this process.
LINES: WaitingLines[Member] = WaitingLines()


def _is_plain(terms: Terms) -> bool:
    """Return whether a commit may share a put of the head with others.

    It may if it only changes files. Other commits read or rewrite what the head names, which the
    commits before them in a group have not written yet. If a put makes several commits to a tree,
    its time is known for the last one only; that of a staged batch must be: see `_may_remember`.
    """
    change = terms.change
    return not (
        _needs_time(terms)
        or change.head
        or change.moves_to
        or change.erases
        or change.rewritten_sources
        or change.new_descriptor
        or change.restores is not None
        or change.horizon is not None
        or change.oldest_batch
        or change.protect
        or change.unprotect
        or change.lost_indices
        or change.indices
        or terms.only_on is not None
        or terms.base.descriptor.checks
    )


def _lead(
    store: Store, leader: Member, line: WaitingLine[Member] | None, opening: _Opening
) -> None:
    """Make attempts until the commit of the leader is decided.

    Args:
        store: The store that holds the dataset.
        leader: The commit that leads.
        line: The line that it leads; None if it is on its own.
        opening: The results of the requests that were sent before the first attempt.
    """
    change = leader.terms.change
    if not (change.head or change.erases or change.leaves):
        _lead_under(None, store, leader, line, opening)
        return
    hold = Holding(store, leader.terms, leader.deadline)
    try:
        _lead_under(hold, store, leader, line, opening)
    finally:
        hold.end(is_landed=leader.landed is not None)


def _lead_under(
    hold: Holding | None,
    store: Store,
    leader: Member,
    line: WaitingLine[Member] | None,
    opening: _Opening,
) -> None:
    """Make attempts; others wait for a commit that takes long, and so has a hold."""
    while not leader.is_done:
        leader.begin()
        if hold is not None and not leader.is_late and hold.begin():
            opening.clear()
        is_alone = leader.is_late or opening.prepared or not _is_plain(leader.terms)
        others = [] if line is None or is_alone else line.take(_Limit(leader))
        try:
            _attempt(store, (leader, *others), opening)
        finally:
            if line is not None:
                line.is_calm = not others and leader.attempts == 1 and leader.is_done
                line.put_back()
        opening.clear()


class _Limit:
    """Decides which commits a leader takes along."""

    def __init__(self, leader: Member) -> None:
        self._count = 1  # the leader
        self._files = 0
        self._commit_ids = {leader.terms.change.commit_id}

    def __call__(self, member: Member) -> bool:
        files = self._files + len(member.terms.change.added)
        fits = self._count < _MOST_TOGETHER and files <= _MOST_FILES_TOGETHER
        # Two threads may commit the same staged batch: the other one finds it in the history.
        is_known = member.terms.change.commit_id in self._commit_ids
        if is_known or not (fits and _is_plain(member.terms)):
            return False
        self._count, self._files = self._count + 1, files
        self._commit_ids.add(member.terms.change.commit_id)
        return True


class _Opening:
    """The requests that the first commit of a line sends at once, before its first attempt.

    Its objects are written while the head is read. If the line is calm, the version after the base
    is also prepared: mostly the head turns out to be the base.

    Attributes:
        prepared: The version after the base, whose segments are written; None if there is none.
    """

    def __init__(self, store: Store, member: Member) -> None:
        self.prepared: Succession | None = None
        self._store = store
        self._member = member
        self._written: list[str] = []
        self._head: Head | None = None
        self._error: LakebedError | None = None

    def do(self, before: Sequence[Callable[[], None]], *, prepares: bool) -> None:
        """Write the objects of the commit, look at the head, and prepare the next version.

        Args:
            before: Functions that write the objects.
            prepares: Whether to prepare the version after the base.
        """
        terms = self._member.terms
        tasks = [*before, self._look]
        base = terms.base
        # A tree needs no request for its next version.
        if prepares and _is_plain(terms) and base.version and not base.is_tree:
            tasks.append(self._prepare)
        try:
            _do_all(tasks, self._store)
        finally:
            self._member.swaps.unused += self._written

    def _look(self) -> None:
        try:
            self._head = _current_head(self._store, self._member.terms.base)
        except LakebedError as exc:
            self._error = exc

    def _prepare(self) -> None:
        prepared = Succession(self._store, self._member.terms.base, self._written)
        try:
            prepared.add(self._member.terms)
            prepared.finish()
        except LakebedError as exc:
            # The first attempt fails in the same way, or not at all.
            _log.info("commit not prepared dataset=%s: %s", prepared.state.name, exc.message)
        else:
            self.prepared = prepared

    def head(self) -> Head:
        """Return the head that was read, or read it.

        Raises:
            LakebedError: It cannot be read, or could not.
        """
        if self._error is not None:
            raise self._error
        return self._head or _current_head(self._store, self._member.terms.base)

    def prepared_on(self, state: State) -> Succession | None:
        """Return the prepared version if it is the one after a state."""
        if self.prepared is None or state.is_changed_by_others:
            return None
        base = self.prepared.first
        is_same = base.is_ours and not base.is_changed_by_others
        for name in ("version", "commit_id", "created_at", "digest", "lists", "indices"):
            is_same = is_same and getattr(base, name) == getattr(state, name)
        return self.prepared if is_same else None

    def clear(self) -> None:
        """Forget everything, for the attempts after the first."""
        self.prepared = self._head = self._error = None


def _current_head(store: Store, base: State) -> Head:
    """Read the head to commit to it."""
    head = read_tree(store, base.name) if base.is_tree and base.version else None
    if head is None:
        head = read_head(store, base.name)
    return head if head.is_settled else settled(store, head)


def _attempt(store: Store, members: Sequence[Member], opening: _Opening) -> None:
    """Try once to commit; the first member leads."""
    leader = members[0]
    leader.attempts += 1
    written: list[str] = []
    following: Succession | None = None
    joined: list[tuple[Member, Entry]] = []
    has_won = False
    try:
        head = opening.head()
        if head.state.held is not None:
            read = partial(_current_head, store, leader.terms.base)
            until = min(member.deadline for member in members)
            head = let_through(head, leader.terms.change.commit_id, until, read)
        following = opening.prepared_on(head.state)
        is_prepared = following is not None
        if following is None:
            following = Succession(store, head.state, written, leader.merges)
        since = _HistorySince(store, head.state)
        joined = _joined(store, head, members, following, since, is_prepared=is_prepared)
        # Only the leader owns the written segments: without it, the others try again.
        if not joined or joined[0][0] is not leader:
            return
        if not is_prepared:
            _do_all([following.finish, since.read_later], store)
        state = following.state
        if [member for member in since.later if member.look(store, head, since.of(member))]:
            return  # they have landed before, and must not again
        due = head.state.schema_file_due
        # A commit that changes the schema again writes the file after its head.
        if due and due == state.schema_file_due:
            is_put = schema_file.try_put(store, state.name, state.descriptor)
            state = replace(state, schema_file_due=0 if is_put else due)
        every = [member.swaps for member, _ in joined]
        has_won = put_head(store, head, state, every, is_remembered=_may_remember(leader.terms))
    except LakebedError as exc:
        for member, _ in joined[1:]:
            if isinstance(exc, StorageError) and exc.retryable:
                member.trouble = exc
        leader.fail(exc)
        return
    finally:
        leader.swaps.unused += following.spoiled if has_won and following else written
    if not has_won:
        return
    for member, entry in joined:
        member.succeed(entry, state if member is joined[-1][0] else None)
    leader.landed = (head.state, state)


def _may_remember(terms: Terms) -> bool:
    """Return whether the next commit of this process may begin with what this one has put.

    A read of the head shows when the storage stored a commit to a tree. Without it, a cleanup takes
    the time of the manifest; but a staged batch may have one that is much older than its commit.
    """
    return terms.change.new_descriptor is None and not _needs_time(terms)


def _needs_time(terms: Terms) -> bool:
    """Return whether the time when the storage stores a commit to a tree must be known."""
    return terms.staged_until is not None and terms.base.is_of_tree


def _joined(
    store: Store,
    head: Head,
    members: Sequence[Member],
    following: Succession,
    history_since: _HistorySince,
    *,
    is_prepared: bool,
) -> list[tuple[Member, Entry]]:
    """Add the commits that have no conflict to the next versions, and return them.

    Args:
        store: The store that holds the dataset.
        head: The current head.
        members: The commits; those that are refused or that have landed before are decided.
        following: The next versions.
        history_since: Reads the entries that the checks need.
        is_prepared: Whether the next versions contain the commit of the only member already.
    """
    leader = members[0]
    joined: list[tuple[Member, Entry]] = []
    history_since.read_ahead(members)
    for member in members:
        try:
            _check_same_dataset(member, head)
            since: tuple[Entry, ...] = ()
            if not history_since.can_wait(member):
                since = history_since.of(member)
                if member.look(store, head, since):
                    continue
            current = head.state if member is leader else following.state
            so_far = () if is_prepared else following.entries
            try:
                member.terms.check(store, current, (*since, *so_far))
                entry = following.entries[-1] if is_prepared else following.add(member.terms)
            except LakebedError:
                # It may conflict with itself: an earlier put may have landed unheard.
                if history_since.look_now(member, head):
                    continue
                raise
        except LakebedError as exc:
            member.fail(exc)
        except Exception as exc:
            # A defect that only the change of one commit has is not that of the leader.
            if member is leader:
                raise
            member.fail(exc)
        else:
            joined.append((member, entry))
            if member is not leader:
                member.attempts += 1
        # An entry for the changes of other tools is in the put of one commit alone.
        if member is leader and (not joined or head.state.is_changed_by_others):
            break
    return joined


def _check_same_dataset(member: Member, head: Head) -> None:
    try:
        conflicts.check_same_dataset(member.terms.base, head.state)
    except CommitConflictError:
        # The head that a put was meant for is gone, or another one is current.
        member.swaps.settle(head)
        raise


class _HistorySince:
    """The entries of the history that the commits of one attempt need, read once.

    Attributes:
        later: Commits that only look for themselves in the history: that can wait until right
            before the put, unless something refuses them.
    """

    def __init__(self, store: Store, now: State) -> None:
        self.later: list[Member] = []
        self._store = store
        self._now = now
        self._after = now.version
        self._entries: tuple[Entry, ...] = ()

    def read_ahead(self, members: Sequence[Member]) -> None:
        """Read what several commits need; if that fails, those that need it find out."""
        needed = [
            (self._needed_after(member), member) for member in members if not self._is_blind(member)
        ]
        if len(needed) > 1:
            oldest = min(needed, key=lambda one: one[0])
            try:
                self.of(oldest[1])
            except LakebedError as exc:
                _log.info("history not read dataset=%s: %s", self._now.name, exc.message)

    def can_wait(self, member: Member) -> bool:
        """Return whether a commit need not know the entries yet; then it is in `later`."""
        is_unlikely = member.swaps.are_refused and not self._now.is_tree
        if not (self._is_blind(member) and is_unlikely) or member.is_late:
            return False
        if self._needed_after(member) < self._now.version:
            self.later.append(member)
            return True
        return False

    def look_now(self, member: Member, head: Head) -> bool:
        """Let a commit that was to wait look for itself; return whether it has landed."""
        if member not in self.later:
            return False
        self.later.remove(member)
        return member.look(self._store, head, self.of(member))

    def read_later(self) -> None:
        """Read what the commits in `later` need."""
        if self.later:
            self.of(min(self.later, key=self._needed_after))

    def of(self, member: Member) -> tuple[Entry, ...]:
        """Return the entries that a commit needs, oldest first.

        Raises:
            LakebedError: They cannot be read.
        """
        after = self._needed_after(member)
        if after < self._after:
            base = member.terms.base
            is_of_puts = self._is_blind(member) and member.swaps.may_land
            known = member.swaps.known_history if is_of_puts else base.lists.history
            self._entries = self._read(after, known)
            self._after = after
        return tuple(entry for entry in self._entries if entry.version > after)

    def _read(self, after: int, known: Segments) -> tuple[Entry, ...]:
        store, listed = self._store, self._now.lists.history
        if not store.is_near:
            # The segments that were added since hold all entries since, mostly.
            before = set(known)
            new = [segment for segment in listed if segment not in before]
            entries = history.read_at_once(store, new, most_requests_of(store))
            versions = [entry.version for entry in entries if entry.version > after]
            if versions == list(range(after + 1, self._now.version + 1)):
                return entries
        return history.read(store, listed, after=after, until=self._now.version)

    def _is_blind(self, member: Member) -> bool:
        return not member.terms.needs_entries(self._now)

    def _needed_after(self, member: Member) -> int:
        """Return the version after which a commit must know the entries."""
        terms, now = member.terms, self._now
        if self._is_blind(member):
            return member.swaps.unproven_after(now, terms.change.batch_id)
        return min(terms.oldest_version, now.version)

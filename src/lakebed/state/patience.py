"""Holds: a commit that takes long asks the other writers to let it through.

A commit that writes a head of many files, or leaves anew, takes seconds between the read of the head
and its put. Other writers commit within that time, so it would lose each race. Therefore, once it
has lost one, it puts a note into the head, without a new version: others wait before their next
commit until the note is gone, or its time is over by their own clock.

A hold is a courtesy. A writer that does not know it, or does not wait any longer, commits as ever:
then the commit that has asked loses another race, and nothing else. The next commit removes the note,
whoever makes it; so writers wait once, if a process dies that has asked.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable

from lakebed.errors import LakebedError, PreconditionFailedError
from lakebed.state.codec import with_hold
from lakebed.state.conflicts import Terms
from lakebed.state.head import decode_head, encode_head
from lakebed.state.reader import Head, read_head
from lakebed.state.state import MOST_HELD_S, MOST_LISTED, HeldFor, is_one_dataset
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_LEAST_S = 10  # that others wait, at most
_TIMES = 3  # as long as the attempt before took, or as it is expected to take
_FILES_A_SECOND = 50_000
_SWAPS = 200  # each is lost to a commit
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.5


class Holding:
    """The hold of one commit, which is placed before each of its attempts after the first.

    Of a dataset of very many files it is placed before the first, too, which would be in vain beside
    other writers.
    """

    def __init__(self, store: Store, terms: Terms, until: float) -> None:
        """Place nothing yet.

        Args:
            store: The store that holds the dataset.
            terms: The terms of the commit.
            until: Time by the monotonic clock after which it is given up.
        """
        self._store = store
        self._until = until
        self._base = terms.base
        self._commit_id = terms.change.commit_id
        self._began: float | None = None
        self._is_placed = False

    def begin(self) -> bool:
        """Place the hold if one is due; if that fails, the commit has to race without it.

        Returns:
            Whether the head may have changed.

        Cost:
            Nothing, or a read of the head and a conditional PUT; more while others win.
        """
        count = self._base.live.count
        is_due = self._began is not None or count > MOST_LISTED
        if not is_due:
            self._began = time.monotonic()
            return False
        took_s = count / _FILES_A_SECOND
        if self._began is not None:
            took_s = max(took_s, time.monotonic() - self._began)
        seconds = min(MOST_HELD_S, max(_LEAST_S, math.ceil(_TIMES * took_s)))
        try:
            self._is_placed |= self._put(HeldFor(self._commit_id, seconds))
        except LakebedError as exc:
            self._is_placed = True  # perhaps: the answer may be lost
            _log.warning("hold not placed dataset=%s: %s", self._base.name, exc.message)
        self._began = time.monotonic()
        return True

    def end(self, *, is_landed: bool) -> None:
        """End the hold if the commit has not landed, which would have removed it.

        The entry stays, without a second, until the next commit. Without it the head would have the
        content again that it had before the hold, and in many stores the etag: then a put of another
        commit, which is known to have failed, could land late.
        """
        if not self._is_placed or is_landed:
            return
        try:
            self._put(HeldFor(self._commit_id, 0))
        except LakebedError as exc:
            _log.warning("hold not ended dataset=%s: %s", self._base.name, exc.message)

    def _put(self, hold: HeldFor) -> bool:
        """Put a head that differs by the hold alone; return whether it has landed."""
        for attempt in range(_SWAPS):
            if hold.seconds and time.monotonic() >= self._until:
                return False
            head_format = self._base.head_format
            stored = self._store.get(head_format.key(self._base.name))
            document = decode_head(stored.data, head_format, stored.key)
            # Files are not decoded: this must not take as long as the commits that it races with.
            if with_hold(document, self._base, hold):
                data = encode_head(document, head_format)
                try:
                    self._store.replace(stored.key, data, if_match=stored.etag)
                except PreconditionFailedError:
                    time.sleep(random.uniform(0, min(0.002 * 2**attempt, _FIRST_LOOK_S)))
                else:
                    return True
            elif not hold.seconds or not self._has_waited():
                return False
        return False

    def _has_waited(self) -> bool:
        """Wait for the hold of another commit; return whether it is gone.

        One that stays for too long goes with the next commit, so nothing replaces it.
        """
        head = self._read()
        if head.state.held is None or not is_one_dataset(self._base, head.state):
            return False
        head = let_through(head, self._commit_id, self._until, self._read)
        return head.state.held is None

    def _read(self) -> Head:
        return read_head(self._store, self._base.name)


def let_through(head: Head, commit_id: str, until: float, read: Callable[[], Head]) -> Head:
    """Wait while a head asks other commits than one to wait, and return the one after.

    Args:
        head: The head as it was read.
        commit_id: Id of the commit that would wait.
        until: Time by the monotonic clock after which the commit, or one that is made with it, is
            given up; half of the time that is left is the most that it waits for one hold.
        read: Reads the head anew.

    Cost:
        Nothing, or conditional GETs of the head: many in the first second, then two a second.
    """
    waited_for: HeldFor | None = None
    while (hold := head.state.held) is not None:
        if hold == waited_for or hold.commit_id == commit_id:
            break
        head, waited_for = wait(head, hold, until, read), hold
    return head


def wait(head: Head, hold: HeldFor, until: float, read: Callable[[], Head]) -> Head:
    """Wait until a hold is gone, or its time is over, and return the head that was read last."""
    now, dataset = time.monotonic(), head.state.name
    end = now + min(hold.seconds, max(0.0, until - now) / 2)
    look_s = _FIRST_LOOK_S
    _log.info("commit waits dataset=%s for=%s", dataset, hold.commit_id)
    while now < end:
        time.sleep(min(look_s, end - now))
        look_s = min(_LONGEST_LOOK_S, 1.5 * look_s)
        head = read()
        if head.state.held != hold:
            return head
        now = time.monotonic()
    _log.warning("commit waited in vain dataset=%s for=%s", dataset, hold.commit_id)
    return head

"""The swap: the next head in the place of one, by a conditional put whose answer may be lost."""

from __future__ import annotations

from lakebed.errors import PreconditionFailedError, StorageError
from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.moving import remove_or_leave
from lakebed.state.reader import Head, remember
from lakebed.state.state import State
from lakebed.state.succession import successor
from lakebed.state.terms import Terms
from lakebed.store.base import Store, delete_or_leave


class Swaps:
    """The attempts of one commit to swap the head, and what is known of them.

    While a put may still land, nothing proves that the commit did not happen, and nothing is
    deleted that its head would name.
    """

    def __init__(self, store: Store, terms: Terms) -> None:
        self._store = store
        self._terms = terms
        # Etags, by key, of the heads under which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # Keys of segments that only heads name which did not win.
        self.unused: list[str] = []

    @property
    def may_land(self) -> bool:
        """Whether a put may still land, or has landed, that has not been seen."""
        return bool(self._pending)

    def settle(self, head: Head) -> None:
        """Note what the head proves of the swaps before, since it does not have our commit."""
        now = {copy.key: copy.etag for copy in (head, head.stale) if copy is not None}
        # A condition that does not hold can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused()

    def swap(self, head: Head) -> tuple[Entry, State] | None:
        """Put the next head in the place of one; None if another was faster."""
        written: list[str] = []
        is_done = False
        try:
            state, entry = successor(self._store, head.state, self._terms, written)
            is_done = self._replace(head, state)
        finally:
            if not is_done:
                self.unused += written
        if not is_done:
            return None
        if head.stale is not None and remove_or_leave(self._store, head.stale):
            self._pending.pop(head.stale.key, None)
        self._pending.pop(head.key, None)
        self._delete_unused()
        return entry, state

    def _replace(self, head: Head, new: State) -> bool:
        """Put the head under its condition; False if the race was lost."""
        data = encode_head(to_document(new), new.head_format)
        before = dict(self._pending)
        self._pending[head.key] = head.etag
        try:
            etag = self._store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Refused, or landed by a put that the client repeated: the next look will tell.
            return False
        except StorageError as exc:
            if not exc.retryable:
                self._pending = before  # the store says that this one did not land
            raise
        if self._terms.change.descriptor is None:
            remember(self._store, head.key, etag, new)
        return True

    def _delete_unused(self) -> None:
        if self.unused and not self._pending:
            delete_or_leave(self._store, self.unused)
            self.unused.clear()

"""Ready signals: small objects that mark a view as complete, for processes that wait for it.

A signal belongs to exactly one view; wider and narrower views have their own. Its object is
`<dataset>/signals/<normalised constraints>`, and is deleted with the dataset.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Annotated

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.model.layout import Folder
from lakebed.model.predicate import Predicate
from lakebed.model.uri import view_query
from lakebed.store.base import MAX_COMPONENT_BYTES, Store

UNBOUNDED = "unbounded"
_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)  # a second signal could not be later than this


class _Signal(msgspec.Struct, frozen=True, kw_only=True):
    constraints: str
    ready_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]


def signal_name(constraint: Predicate) -> str:
    """Return the name of the signal of a view within its dataset.

    >>> from lakebed.model.predicate import Comparison, Membership, Op
    >>> signal_name(Membership("value", (7, 2, 3))), signal_name(Comparison("value", Op.LT, 12))
    ('value=2,3,7', 'value=(,12)')
    """
    text = _text_of(constraint)
    if len(text) > MAX_COMPONENT_BYTES:
        return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def _text_of(constraint: Predicate) -> str:
    return view_query(constraint, normalised=True).replace("@", "%40") or UNBOUNDED


def _key(dataset: str, constraint: Predicate) -> str:
    return Folder.SIGNALS.of(dataset, signal_name(constraint))


def put(store: Store, dataset: str, constraint: Predicate) -> dt.datetime:
    """Signal that a view is ready, and return the time of the signal.

    A second signal is later than the first, even if the clock is not. A signal that cannot be read
    is replaced.

    Cost:
        One GET and one PUT.
    """
    now = dt.datetime.now(dt.UTC)
    try:
        before = find(store, dataset, constraint)
    except CorruptMetadataError:
        before = None
    if before is not None:
        now = max(now, before + dt.timedelta(microseconds=1))
    signal = _Signal(constraints=_text_of(constraint), ready_at=now)
    store.put(_key(dataset, constraint), msgspec.json.encode(signal))
    return now


def find(store: Store, dataset: str, constraint: Predicate) -> dt.datetime | None:
    """Return the time when a view was last signalled ready; None if it never was.

    Raises:
        CorruptMetadataError: The signal cannot be read, or belongs to another view.

    Cost:
        One GET.
    """
    key = _key(dataset, constraint)
    try:
        data = store.get(key).data
    except ObjectNotFoundError:
        return None
    try:
        signal = from_json(data, _Signal)
        ready_at = signal.ready_at.astimezone(dt.UTC)
        is_ours = signal.constraints == _text_of(constraint) and ready_at < _LATEST
    except (*UNREADABLE, OverflowError):
        is_ours = False
    if not is_ours:
        raise CorruptMetadataError(
            f"Signal {key!r} cannot be read, or belongs to another view.",
            hint="Signal the view again.",
        )
    return ready_at

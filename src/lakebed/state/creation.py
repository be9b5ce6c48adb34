"""The first state of a dataset."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid

from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Folder, Layout, segment_key
from lakebed.state import history
from lakebed.state.head import HeadFormat
from lakebed.state.state import State, digest_of
from lakebed.store.segments import Segment

_SUFFIX = f".first{history.SUFFIX}"


def first_state(name: str, descriptor: DatasetDescriptor, head_format: HeadFormat) -> State:
    """Return a dataset as it is before its first commit.

    Raises:
        PartitionSpecError: The descriptor is that of a dataset of another tool, of which none of
            ours can be made.
    """
    descriptor.check()
    now = dt.datetime.now(dt.UTC)
    return State(
        layout=Layout.of_ours(name, descriptor),
        head_format=head_format,
        labels=(),
        created_at=now.isoformat(),
        commit_id=uuid.uuid4().hex,
        committed_at=now,
        digest=digest_of(()),
        annotations={},
        indices={},
    )


def first_segment(state: State) -> Segment:
    """Return the segment of the first entry in the history.

    It is written before the head, so that its key says of which dataset it is: who drops another
    one of the name meanwhile leaves it alone.
    """
    unique = uuid.uuid4().hex[: 32 - len(_sign_of(state))]
    return Segment(_begin_of(state) + unique + _SUFFIX, weight=1)


def is_of_a_namesake(key: str, state: State) -> bool:
    """Whether a key is of the first segment of another dataset, whose head may yet come."""
    is_first = key.startswith(f"{Folder.HISTORY.of(state.name)}/") and key.endswith(_SUFFIX)
    return is_first and not key.startswith(_begin_of(state))


def _begin_of(state: State) -> str:
    return segment_key(Folder.HISTORY.of(state.name), 1, _sign_of(state))


def _sign_of(state: State) -> str:
    return hashlib.blake2b(state.created_at.encode(), digest_size=8).hexdigest()

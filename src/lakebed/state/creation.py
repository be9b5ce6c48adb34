"""The first state of a dataset."""

from __future__ import annotations

import datetime as dt
import uuid

from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import TABLE
from lakebed.state.head import HeadFormat
from lakebed.state.state import State, digest_of


def first_state(name: str, descriptor: DatasetDescriptor, head_format: HeadFormat) -> State:
    """Return a dataset as it is before its first commit.

    Raises:
        PartitionSpecError: The descriptor is that of a dataset of another tool, of which none of
            ours can be made.
    """
    descriptor.check()
    now = dt.datetime.now(dt.UTC)
    return State(
        name=name,
        table=TABLE,
        head_format=head_format,
        descriptor=descriptor,
        partition_keys=tuple(descriptor.partition_types),
        labels=(),
        created_at=now.isoformat(),
        commit_id=uuid.uuid4().hex,
        committed_at=now,
        digest=digest_of(()),
        annotations={},
        indices={},
    )

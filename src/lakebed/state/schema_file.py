"""The schema file for plateau and kartothek, a copy of the schema in the head."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.errors import LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import TABLE, schema_key
from lakebed.state import kartothek
from lakebed.state.reader import read_head
from lakebed.store.base import Store

_log = logging.getLogger(__name__)


def put(store: Store, dataset: str, descriptor: DatasetDescriptor) -> None:
    """Write the schema file of a dataset of ours.

    Cost:
        One PUT.
    """
    store.put(
        schema_key(dataset, TABLE),
        kartothek.encode_schema(descriptor.schema, descriptor.partition_types),
    )


def put_or_leave(store: Store, dataset: str, descriptor: DatasetDescriptor) -> None:
    """Write the schema file after an update; log a failure, since Lakebed itself never reads it.

    Of two updates the later one must win, even if the earlier one is slower to write its file. So
    the head is read again after the file was written.

    Cost:
        One PUT and one GET, and as many again for each update in between.
    """
    with _leaving(dataset):
        _put_in_step(store, dataset, descriptor)


def try_put(store: Store, dataset: str, descriptor: DatasetDescriptor) -> bool:
    """Write the schema file before a commit, for an earlier one whose writer may have stopped.

    Returns:
        False if that has failed, which is logged.

    Cost:
        One PUT.
    """
    with _leaving(dataset):
        put(store, dataset, descriptor)
        return True
    return False


def follow_head(store: Store, dataset: str) -> None:
    """Write the schema file for the current head; log a failure.

    Cost:
        As `put_or_leave`, and one GET.
    """
    with _leaving(dataset):
        _put_in_step(store, dataset, read_head(store, dataset).state.descriptor)


def follow_own_head(store: Store, dataset: str) -> None:
    """Write the schema file for the current head if it is one of ours; log a failure.

    Cost:
        As `follow_head`; a read of the head if it is not.
    """
    with _leaving(dataset):
        state = read_head(store, dataset).state
        if state.is_ours:
            _put_in_step(store, dataset, state.descriptor)


def _put_in_step(store: Store, dataset: str, descriptor: DatasetDescriptor) -> None:
    written = None
    while written != descriptor:
        put(store, dataset, descriptor)
        written, descriptor = descriptor, read_head(store, dataset).state.descriptor


@contextmanager
def _leaving(dataset: str) -> Iterator[None]:
    try:
        yield
    except LakebedError as exc:
        _log.warning(
            "schema file is not that of the head, other tools see the old schema: update the "
            "dataset again with the same descriptor dataset=%s error=%s",
            dataset,
            exc,
        )

"""What tests look at behind a dataset; the other modules of tests need no private name for it."""

from lakebed import Dataset, View
from lakebed.state.state import State
from lakebed.store.base import Store

# Reads the rows that a rewrite keeps, in the process that does the work.
ROWS_OF_A_REWRITE = "lakebed.arrow.rewrite._rows"


def store_of(dataset: Dataset | View) -> Store:
    """Return the store that a dataset is read from and written to."""
    return dataset._source.store


def state_of(dataset: Dataset | View) -> State:
    """Return the state of a dataset as its head has it, or as it is pinned."""
    return dataset._source.load().state


def cached_state_of(dataset: Dataset | View) -> State:
    """Return the state that a dataset has read last."""
    return dataset._source.cached()


def is_pinned(dataset: Dataset) -> bool:
    """Return whether a dataset is at a version of its own."""
    return dataset._source.pinned is not None

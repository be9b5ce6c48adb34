"""What tests look at behind a dataset; the other modules of tests need no private name for it."""

from typing import Any

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


def callbacks_of(spark: Any) -> tuple[int, list[str]]:
    """Return the port that the JVM of a session calls, and the names of some objects behind it."""
    gateway = spark.sparkContext._gateway
    pool = gateway.gateway_property.pool
    names = [name for name in map("p{}".format, range(10_000)) if name in pool]
    return gateway._callback_server.server_socket.getsockname()[1], names


def tokens_of(spark: Any) -> tuple[str, str]:
    """Return the tokens of calls from the JVM of a session, and of calls into it."""
    gateway = spark.sparkContext._gateway
    return gateway.callback_server_parameters.auth_token, gateway.gateway_parameters.auth_token

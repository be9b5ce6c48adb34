"""Publication after each commit, of datasets whose properties ask for it."""

from __future__ import annotations

import logging

from lakebed import delta, iceberg
from lakebed.errors import LakebedError
from lakebed.state.after import PUBLISH
from lakebed.state.state import State
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

DELTA, ICEBERG = "publish.delta", "publish.iceberg"
ICEBERG_CATALOG, ICEBERG_TABLE = "publish.iceberg.catalog", "publish.iceberg.table"
_KNOWN = (DELTA, ICEBERG, ICEBERG_CATALOG, ICEBERG_TABLE)


def publish(store: Store, state: State) -> None:
    """Publish a dataset to what its properties name, each by itself.

    `publish.delta` and `publish.iceberg` are `true` or not; `publish.iceberg.catalog` and
    `publish.iceberg.table` name a catalog of pyiceberg's configuration and the table in it.
    """
    properties = state.descriptor.properties
    for name in properties:
        if name.startswith(PUBLISH) and name not in _KNOWN:
            known = ", ".join(_KNOWN)
            _log.warning("unknown property dataset=%s %s; known: %s", state.name, name, known)
    if _is_on(properties.get(DELTA)):
        try:
            delta.publication.publish(store, state.name)
        except LakebedError as exc:
            _warn("delta", state, exc)
    if _is_on(properties.get(ICEBERG)):
        try:
            iceberg.publication.publish(
                store,
                state.name,
                catalog=properties.get(ICEBERG_CATALOG),
                table=properties.get(ICEBERG_TABLE),
            )
        except LakebedError as exc:
            _warn("iceberg", state, exc)


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _warn(target: str, state: State, exc: LakebedError) -> None:
    _log.warning(
        "not published after a commit dataset=%s to=%s: %s %s",
        state.name,
        target,
        exc.message,
        exc.hint,
    )

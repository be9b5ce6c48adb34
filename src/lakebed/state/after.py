"""What else a dataset wants after each of its commits, by its properties.

Commits of every verb end in `lakebed.state.transaction`, far below what publishes. So this is the
one place that names a higher room, and imports it only for a dataset that asks for it.
"""

from __future__ import annotations

import importlib
import logging

from lakebed.state.state import State
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

PUBLISH = "publish."  # what such properties begin with
_PUBLISHER = "lakebed.automatic"


def after_commit(store: Store, state: State) -> None:
    """Publish a dataset that wants to be, after a commit that was made.

    What fails then is told as a warning, and the next publication makes it good: the commit is as
    good as without.

    Args:
        store: Where the dataset is.
        state: What its head said at the commit, or a little before.
    """
    if not any(name.startswith(PUBLISH) for name in state.descriptor.properties):
        return
    try:
        importlib.import_module(_PUBLISHER).publish(store, state)
    except Exception as exc:  # noqa: BLE001 - the commit was made, whatever this is
        _log.warning("not published after a commit dataset=%s: %s", state.name, exc)

"""Calls from Python into the JVM of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection


@contextmanager
def count_jvm_calls(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give the list of the calls into the JVM that are made until the end."""
    calls: list[str] = []
    send = ClientServerConnection.send_command

    def note(connection: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        if not command.startswith("m\nd"):  # a note that an object is no longer needed
            calls.append(command)
        return send(connection, command, *args, **kwargs)

    with patch.context() as patched:
        patched.setattr(ClientServerConnection, "send_command", note)
        yield calls

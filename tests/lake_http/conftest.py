"""Servers of the tests end with their module."""

from __future__ import annotations

import pytest
from asking import Client


@pytest.fixture(scope="module", autouse=True)
def _stopped():
    yield
    while Client.running:
        Client.running.pop().stop()

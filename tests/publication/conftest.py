"""The process of other engines, which takes long to start: one for each module."""

import pytest
from engine_peers import Peers


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    peers = Peers(tmp_path_factory.mktemp("peers"))
    yield peers
    peers.close()

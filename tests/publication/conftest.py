"""The process of other engines, for all modules that ask for it."""

from engine_peers import peers  # noqa: F401 - a fixture

"""Credential providers that obstore calls."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

Provider = Callable[[], Mapping[str, Any]]


class LateProvider(ABC):
    """Credentials that are looked up at the first request. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: Provider | None = None

    def __call__(self) -> Mapping[str, Any]:
        """Return the credentials for a request in the form that obstore takes."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
        return self._opened()

    @abstractmethod
    def _open(self) -> Provider: ...

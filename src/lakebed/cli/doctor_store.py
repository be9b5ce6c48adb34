"""What the verb doctor says of a store: whether it answers, and what it does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from lakebed.cli.doctor_lines import DoctorLine, doctor_line
from lakebed.common.shown import counted
from lakebed.errors import AccessDeniedError, LakebedError, redacted
from lakebed.repository import open_repository
from lakebed.store import Store, open_store
from lakebed.store.base import location_exists
from lakebed.store.trial import try_store

_ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def look_at_store(url: str, storage_options: Mapping[str, str]) -> DoctorLine:
    """Say whether the store answers, and whether it looks at the conditions of puts."""
    try:
        repository = open_repository(url, storage_options=storage_options)
        count = len(repository.list())
        access = _access(repository.store)
    except LakebedError as error:
        return doctor_line("store", "failed", redacted(url), str(error))
    if not location_exists(repository.store):
        return _missing(repository.store)
    return doctor_line("store", "ok", repository.uri, f"{counted(count, 'dataset')}{access}")


def _missing(store: Store) -> DoctorLine:
    return doctor_line("store", "absent", store.uri, "no such directory; a write makes it")


def _access(store: Store) -> str:
    """Say what keeps the store from being written; that the user has wished for is no failure."""
    if not store.supports_compare_and_swap:
        return ", read only"
    try:
        store.try_conditions()
    except AccessDeniedError as error:
        return f", read only with these credentials: {error.message}"
    return ""


def try_at_store(url: str, storage_options: Mapping[str, str], *, rounds: int) -> list[DoctorLine]:
    """Say what the store does when several write, and what else is relied on."""
    try:
        store = open_store(url, storage_options=storage_options)
        if not location_exists(store):
            return [_missing(store)]
        if not store.supports_compare_and_swap:
            return [doctor_line("store", "ok", store.uri, "read only, so nothing is tried")]
        with _terminated_as_interrupted():
            trial = try_store(url, storage_options=storage_options, rounds=rounds)
    except LakebedError as error:
        return [doctor_line("store", "failed", redacted(url), str(error))]
    checks = [
        doctor_line(check.name, check.status, check.value, check.detail)
        for check in (*trial.checks, trial.verdict)
    ]
    if not trial.is_complete and len(trial.checks) == 1:
        return [doctor_line("store", "failed", trial.uri, "the first request failed"), *checks]
    return [doctor_line("store", "ok", trial.uri), *checks]


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM and a terminal that is closed end the block as Ctrl-C does.

    So what it holds is put away. A signal that is ignored, as by nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    fatal = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]
    for number in fatal:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as asked for
    raise KeyboardInterrupt

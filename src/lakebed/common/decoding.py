"""Documents of JSON and msgpack as values of a type, in any number of threads.

msgspec looks into a type when it decodes the first value of it. If two threads do that at once, one
of them may use a description that the other has begun, and the process ends with a segmentation
fault. So a decoder of each type is made once, by one thread at a time, and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

# A document is malformed, of another form than the type, not UTF-8, or nested too deeply.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_one_at_a_time = threading.RLock()
_json: dict[object, msgspec.json.Decoder[Any]] = {}
_msgpack: dict[object, msgspec.msgpack.Decoder[Any]] = {}


def from_json(data: bytes | memoryview | str, kind: type[_T]) -> _T:
    """Read JSON.

    Raises:
        msgspec.MsgspecError: It is malformed, or of another form than the type.
    """
    decoder = _json.get(kind)
    if decoder is None:
        with _one_at_a_time:
            decoder = _json.setdefault(kind, msgspec.json.Decoder(kind))
    value: _T = decoder.decode(data)
    return value


def from_msgpack(
    data: bytes | memoryview, kind: type[_T], hook: Callable[[type, Any], Any] | None = None
) -> _T:
    """Read msgpack.

    Args:
        data: The document.
        kind: Type of the value.
        hook: Function that returns the value of a type that msgpack does not support.

    Raises:
        msgspec.MsgspecError: It is malformed, or of another form than the type.
    """
    decoder = _msgpack.get((kind, hook))
    if decoder is None:
        with _one_at_a_time:
            made = msgspec.msgpack.Decoder(kind, dec_hook=hook)
            decoder = _msgpack.setdefault((kind, hook), made)
    try:
        value: _T = decoder.decode(data)
    except TypeError as exc:  # msgspec 0.19 raises it for a map as the key of a map
        raise msgspec.DecodeError(f"MessagePack data is malformed: {exc}") from exc
    return value


def from_values(values: object, kind: type[_T]) -> _T:
    """Convert values such as those of a mapping.

    Raises:
        msgspec.ValidationError: They are of another form than the type.
    """
    with _one_at_a_time:
        return msgspec.convert(values, kind)

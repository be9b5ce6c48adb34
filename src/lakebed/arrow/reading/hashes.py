"""The hash that shows whether a content equals the stored one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakebed.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

HASH_BYTES = 16

_OWN_HASH = re.compile(rf"[0-9a-f]{{{2 * HASH_BYTES}}}")


def content_hash(pieces: Iterable[Buffer]) -> str:
    """Return BLAKE2b of a content, 16 bytes in hex.

    Examples:
        >>> content_hash([b"mwa", b"haha"])
        'a3e75ee4f45f676422e038f2c116d000'
    """
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def can_verify(expected_hash: str) -> bool:
    """Return whether a hash is one of ours; callers of the original tools could give any text."""
    return _OWN_HASH.fullmatch(expected_hash) is not None


def check_hash(actual: str, expected: str | None, where: str, hint: str) -> None:
    """Check a hash; None fits every content.

    Raises:
        FormatError: The hashes differ.
    """
    if expected not in {None, actual}:
        msg = f"The content of {where} has the hash {actual}, but its metadata has {expected}."
        raise FormatError(msg, hint=hint)

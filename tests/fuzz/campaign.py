"""Mutations of inputs, and the record of what they find."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lakebed
from fuzz.limits import guarded
from fuzz.targets import Target
from lakebed.errors import LakebedError

CORPUS = Path(__file__).with_name("corpus")
SOURCE = Path(lakebed.__file__).parent
_ODD = (
    b"\0",
    b"\xff",
    b"\x80",
    b"-1",
    b"99999999999999999999",
    b"1e400",
    b"NaN",
    b"\\u0000",
    b"\xed\xa0\x80",
)
_DEEP = (b"[", b"(", b'{"a":', b"\x91", b"\x81\xa1a", b"NOT ", b"[[a]]\n", b"a.")


@dataclass(frozen=True)
class Found:
    """An input that has raised another error than a named one.

    Attributes:
        target: Name of the target.
        data: The input.
        error: The error, as text.
        place: Innermost line of Lakebed, and the type of the error, by which findings are told apart.
        trace: The traceback.
    """

    target: str
    data: bytes
    error: str
    place: str
    trace: str


def tried(target: Target, data: bytes) -> Found | None:
    """Give an input to a target; return a finding, or None if it holds."""
    try:
        with guarded():
            target.call(data)
    except LakebedError:
        return None
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as exc:  # noqa: BLE001 - each one is a finding
        frames = traceback.extract_tb(exc.__traceback__)
        own = [one for one in frames if one.filename.startswith(str(SOURCE))] or frames[-1:]
        last = own[-1]
        name = Path(last.filename).name
        return Found(
            target=target.name,
            data=data,
            error=f"{type(exc).__name__}: {exc}"[:300],
            place=f"{name}:{last.lineno} {type(exc).__name__}",
            trace="".join(traceback.format_exception(exc, limit=-8))[-4000:],
        )
    return None


def warm_up(target: Target, inputs: Iterable[bytes]) -> None:
    """Give inputs to a target without limits: the first ones import modules, and make lakes."""
    for data in inputs:
        with contextlib.suppress(Exception):
            target.call(data)


def kept(target: Target) -> Iterator[tuple[str, bytes]]:
    """Yield the inputs that were findings once, with their names."""
    folder = CORPUS / target.name
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        yield path.name, path.read_bytes()


def keep(target: Target, data: bytes, folder: Path = CORPUS) -> Path:
    """Write an input to a corpus."""
    path = folder / target.name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def mutated(data: bytes, others: Sequence[bytes], target: Target, rng: random.Random) -> bytes:
    """Return an input that differs from another one in a few places."""
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 4, 16, 64)))
        piece = data[at:end]
        match rng.randrange(10):
            case 0:
                piece = bytes(one ^ 1 << rng.randrange(8) for one in piece[:1]) + piece[1:]
            case 1:
                piece = bytes([rng.randrange(256)]) + piece[1:]
            case 2:
                piece = b""
            case 3:
                piece *= rng.choice((2, 3, 50))
            case 4:
                piece = rng.choice((*_ODD, *target.words)) + piece
            case 5:
                piece = rng.choice((*_ODD, *target.words))
            case 6:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                piece = other[start : start + rng.choice((4, 16, 64, 256))]
            case 7:
                end = len(data)
                piece = b""
            case 8:
                piece = bytes(reversed(piece))
            case 9:
                piece = rng.choice(_DEEP) * rng.choice((20, 300, 1500))
        data = data[:at] + piece + data[end:]
    return data[: target.most]


def short(target: Target, count: int) -> list[Found]:
    """Give a target its seeds, its kept inputs, and mutations by a fixed seed."""
    seeds = [one for one in target.seeds() if len(one) <= 4 * target.most]
    assert seeds, f"{target.name} has no seeds"
    own = [*seeds, *(data for _, data in kept(target))]
    rng = random.Random(target.name)
    found: dict[str, Found] = {}
    for data in own:
        one = tried(target, data)
        if one is not None:
            found.setdefault(one.place, one)
    for _ in range(round(count * target.share)):
        one = tried(target, mutated(rng.choice(own), own, target, rng))
        if one is not None:
            found.setdefault(one.place, one)
    return list(found.values())


def report(found: Found) -> None:
    """Print a finding."""
    sys.stdout.write(
        f"--- {found.target} {found.place}\n{found.error}\n{found.data[:200]!r}\n{found.trace}\n"
    )
    sys.stdout.flush()

"""Types are looked into by one thread at a time: msgspec crashes if two do so at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import lakebed
from lakebed.common.decoding import from_msgpack

SOURCE = Path(lakebed.__file__).parent
# Its types are made for the fields of a dataset, each by the thread that uses it.
MAKES_ITS_OWN = {
    "arrow/document_columns.py",
    "arrow/documents.py",
    "arrow/reading/document_kinds.py",
    "common/decoding.py",
}
OTHER = re.compile(r"\.Decoder\(|msgspec\.convert\(|\.decode\([^)]*\btype=")

# With types of many members, and threads that take turns as often as possible, each of a few rounds
# ends in a segmentation fault if the threads decode by themselves.
ROUNDS = """
import sys, threading
import msgspec
from lakebed.common.decoding import from_json, from_msgpack, from_values

sys.setswitchinterval(1e-6)
members = [(f"m{n}", int | None, None) for n in range(40)]
document = {"inner": [{"m0": 1, "m39": 2}], "named": {"a": {"m3": 3}}}
as_json, as_msgpack = msgspec.json.encode(document), msgspec.msgpack.encode(document)
for number in range(300):
    inner = msgspec.defstruct(f"Inner{number}", members)
    outer = msgspec.defstruct(
        f"Outer{number}", [("inner", tuple[inner, ...]), ("named", dict[str, inner])]
    )
    start, found = threading.Barrier(6), []

    def read(turn):
        start.wait()
        match turn % 3:
            case 0:
                found.append(from_json(as_json, outer))
            case 1:
                found.append(from_msgpack(as_msgpack, outer))
            case _:
                found.append(from_values(document, outer))

    threads = [threading.Thread(target=read, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and all(one == found[0] for one in found)
    assert found[0].inner[0].m39 == 2 and found[0].named["a"].m3 == 3
"""


def test_threads_that_read_the_first_document_of_a_type_at_once_do_not_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_documents_are_decoded_by_the_functions_for_it() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in MAKES_ITS_OWN
        for line in path.read_text().splitlines()
        if OTHER.search(line)
    ]
    assert not found, "call lakebed.common.decoding instead"


# What decodes values, or what is known to be text.
NOT_OF_BYTES = {"archive/retraction.py", "pipeline/declaration.py", "state/moving.py"}
CLAUSES = re.compile(r"except \(?([^:]*?)\)?(?: as \w+)?:")


def test_malformed_documents_are_caught_with_those_that_are_not_text_or_too_deep() -> None:
    """Other errors than those of msgspec come of bytes that are not UTF-8, and of deep nesting."""
    found = [
        f"{path.relative_to(SOURCE)}: except {' '.join(match[1].split())}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in {*NOT_OF_BYTES, *MAKES_ITS_OWN}
        for match in CLAUSES.finditer(path.read_text())
        if "msgspec.MsgspecError" in match[1]
        and not ("RecursionError" in match[1] and re.search("Unicode|ValueError", match[1]))
    ]
    assert not found, "catch lakebed.common.decoding.UNREADABLE"


@pytest.mark.parametrize("data", [b"\x81\x81\xa1a\x01\x02", b"\x91\x81\x81\xa1a\x01\x02"])
def test_a_key_that_cannot_be_one_is_malformed_in_each_release_of_msgspec(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError, match="malformed"):
        from_msgpack(data, object)

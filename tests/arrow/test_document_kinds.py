"""The law of inspected JSON lines: read by blocks they say what they say line by line."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest

from lakebed.arrow.documents import decode_object
from lakebed.arrow.reading import blocks, inference
from lakebed.arrow.reading.document_kinds import KnownDocuments, SeenValues
from lakebed.arrow.reading.files import find_any_files
from lakebed.errors import LakebedError

SCALARS = (
    None,
    *("a", "2024-01-01", "2024-01-01T00:00:00Z", 'é"\\', "x" * 30),
    *(0, 1, -5, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30),
    *(1.0, 1.5, -0.0, 1e300, 0.1),
    *(True, False),
)
WAYS: list[tuple[Literal["skip", "error", "report"], bool]] = [
    ("skip", True),
    ("skip", False),
    ("error", True),
    ("error", False),
    ("report", True),
]


def some_value(chance: random.Random, depth: int = 0) -> Any:
    form = chance.random() if depth < 2 else 0
    if form < 0.7:
        return chance.choice(SCALARS)
    if form < 0.85:
        return [some_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {name: some_value(chance, depth + 1) for name in "pqr"[: chance.randrange(4)]}


def spoiled(text: str, chance: random.Random) -> str:
    return chance.choice(
        [
            text[:-3],
            "",
            f"{text} {text}",
            f"  {text}\r",
            text.replace(":", ":\n", 1),
            "[1]",
            text.replace("1.5", "1e999"),
            text.replace('"', "\\", 1),
        ]
    )


def some_lines(chance: random.Random) -> bytes:
    """Return lines of which most are alike."""
    names = ["id", "t", "v", "a b", "w", "x y"][: chance.randrange(1, 7)]
    usual = {name: some_value(chance) for name in names}
    lines = []
    for _ in range(chance.choice([5, 40, 300])):
        document = {
            name: usual[name] if chance.random() < 0.97 else some_value(chance)
            for name in names
            if chance.random() < 0.995
        }
        if chance.random() < 0.01:
            document["new"] = some_value(chance)
        text = json.dumps(document, ensure_ascii=chance.random() < 0.5)
        lines.append(spoiled(text, chance) if chance.random() < 0.03 else text)
    return ("\n".join(lines) + "\n" * (chance.random() < 0.5)).encode()


def inspected(path: Path, unfit: Any, rows: int, *, takes_any: bool, records: str = "lines") -> str:
    files = find_any_files(str(path), "json")
    json = {"records": records}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return repr(
                inference.inspect_files(
                    files, "json", json=json, rows=rows, unfit=unfit, takes_any=takes_any
                )
            )
    except LakebedError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(12))
def test_groups_of_elements_say_what_single_ones_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
):
    for number in range(6):
        chance = random.Random(1000 * seed + number)
        path = tmp_path / "rows.json"
        elements = [line for line in some_lines(chance).split(b"\n") if line.strip()]
        records = chance.choice(["array", "concatenated"])
        text = b",\n".join(elements) if records == "array" else b" ".join(elements)
        path.write_bytes(b"[%b]" % text if records == "array" else text)
        unfit, takes_any = chance.choice(WAYS)
        rows = chance.choice([0, 0, 100])
        monkeypatch.setattr(inference, "LINES_PER_GROUP", chance.choice([1, 7, 20]))

        in_groups = inspected(path, unfit, rows, takes_any=takes_any, records=records)

        with monkeypatch.context() as patched:
            patched.setattr(KnownDocuments, "of", classmethod(lambda cls, root: None))
            singly = inspected(path, unfit, rows, takes_any=takes_any, records=records)
        assert in_groups == singly


@pytest.mark.parametrize("records", ["array", "concatenated"])
def test_elements_that_are_known_are_not_looked_at_value_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: str
):
    monkeypatch.setattr(inference, "LINES_PER_GROUP", 10)
    path, added = tmp_path / "rows.json", 0
    rows = [{"n": n, "t": {"v": ["x"]}} for n in range(1_000)]
    text = json.dumps(rows) if records == "array" else "".join(map(json.dumps, rows))
    path.write_text(text)
    add = SeenValues.add

    def counted(*given: Any, **named: Any) -> None:
        nonlocal added
        added += 1
        add(*given, **named)

    monkeypatch.setattr(SeenValues, "add", counted)
    schema = inspected(path, "skip", 0, takes_any=True, records=records)

    assert "row_count=1000" in schema
    assert added < 500


@pytest.mark.parametrize("seed", range(40))
def test_blocks_say_what_lines_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int):
    for number in range(10):
        chance = random.Random(1000 * seed + number)
        path = tmp_path / "rows.jsonl"
        path.write_bytes(some_lines(chance))
        unfit, takes_any = chance.choice(WAYS)
        rows = chance.choice([0, 0, 100])
        monkeypatch.setattr(inference, "LINES_PER_GROUP", chance.choice([1, 7, 20]))
        monkeypatch.setattr(blocks, "BLOCK_BYTES", chance.choice([800, 8_000, 80_000]))

        by_blocks = inspected(path, unfit, rows, takes_any=takes_any)

        with monkeypatch.context() as patched:
            patched.setattr(KnownDocuments, "of", classmethod(lambda cls, root: None))
            assert by_blocks == inspected(path, unfit, rows, takes_any=takes_any)


def seen(*lines: bytes) -> SeenValues:
    root = SeenValues()
    for number, line in enumerate(lines):
        root.add(decode_object(line), "", f"line {number}", depth=0, takes_any=True)
    return root


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        (b'{"n":2,"s":"b","o":{"f":1}}', True),
        (b'{"s":"b","n":2,"o":{"f":1.5}}\r', True),
        (b'{"n":2,"s":"b"}', False),
        (b'{"n":2,"s":null,"o":{"f":1}}', False),
        (b'{"n":2.0,"s":"b","o":{"f":1}}', False),
        (b'{"n":9007199254740993,"s":"b","o":{"f":1}}', False),
        (b'{"n":2,"s":"b","o":{"f":9007199254740993}}', False),
        (b'{"n":2,"s":"b","o":{"f":1e999}}', False),
        (b'{"n":2,"s":"b","o":{"f":1,"g":1}}', False),
        (b'{"n":2,"s":"b","o":{"f":1}} {"n":2,"s":"b","o":{"f":1}}', False),
        (b'{"n":2,"s":"\xff","o":{"f":1}}', False),
        (b'{"n":2,"s":"\\ud800","o":{"f":1}}', False),
        (b"", False),
    ],
)
def test_only_what_has_been_seen_is_known(line: bytes, is_known: bool):
    root = seen(b'{"n":1,"s":"a","o":{"f":1.5}}', b'{"n":3,"s":"c","o":{"f":1}}')
    known = KnownDocuments.of(root)
    assert known is not None

    assert known.take(line + b"\n", 1) is is_known

    assert root.count == 2 + is_known
    assert known.take_each([line]) == ([] if is_known else [0])


def test_an_object_of_two_lines_is_no_line_of_two_objects():
    root = seen(b'{"a":1}')
    known = KnownDocuments.of(root)
    assert known is not None

    assert not known.take(b'{"a":\n1} {"a":1}\n', 2)
    assert root.count == 1


@pytest.mark.parametrize(
    "lines", [(b'{"a":{}}',), (b'{"a":[]}',), (b'{"a":1}', b'{"a":"x"}'), (b"{}",)]
)
def test_what_has_no_class_is_read_line_by_line(lines: tuple[bytes, ...]):
    assert KnownDocuments.of(seen(*lines)) is None

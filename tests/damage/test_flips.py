"""A flipped bit in a data file or a head: a named error or the same rows, and the process goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from damage.flips import ADOPTED, FILES, flip_bits, flip_footer

HOW_MANY = pytest.mark.parametrize(
    "count",
    [pytest.param(100, id="some"), pytest.param(None, id="every", marks=pytest.mark.long)],
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in FILES if name != ADOPTED])
@HOW_MANY
def test_a_flipped_bit_is_a_named_error_and_no_other_answer(
    tmp_path: Path, name: str, count: int | None
) -> None:
    found = flip_bits(name, tmp_path, count)

    assert found.wrong == []
    assert found.counts["error"], "no flip was noticed"
    assert found.counts.total() == (count or 2 * found.size)


@pytest.mark.timeout(3600)
@HOW_MANY
def test_a_flipped_bit_of_a_file_of_another_tool_ends_no_process(
    tmp_path: Path, count: int | None
) -> None:
    found = flip_bits(ADOPTED, tmp_path, count)

    # Nothing says what another tool has written: its bytes are believed if they can be read.
    assert [flip for flip in found.wrong if ": other" not in flip] == []


@pytest.mark.timeout(3600)
def test_a_footer_of_another_tool_that_is_damaged_after_it_was_read_ends_no_process(
    tmp_path: Path,
) -> None:
    found = flip_footer(ADOPTED, tmp_path, every=5)

    # Some of these flips let Arrow wait for ever, or end the process, where nobody looks again.
    assert [flip for flip in found.wrong if ": other" not in flip] == []
    assert found.counts["error"]

"""What operations leave on storage is what they have always left there."""

from pathlib import Path

import pytest
from operations import listing

GOLDEN = Path(__file__).with_name("golden.txt")
_TOLD = 20


@pytest.fixture(scope="module")
def left() -> list[str]:
    return listing()


def test_operations_leave_what_they_always_left(left):
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()

    # The operation, the folder, the number of objects and a digest of what they say.
    missing, new = (
        [one for one in golden if one not in left],
        [one for one in left if one not in golden],
    )
    told = "\n".join(
        [*(f"- {one}" for one in missing[:_TOLD]), *(f"+ {one}" for one in new[:_TOLD])]
    )
    assert left == golden, (
        f"{len(missing)} lines are missing and {len(new)} are new:\n{told}\n"
        "See the differences: run tests/bytes/operations.py OUT --decoded on both, then diff -r. "
        "If they are meant: run it with --listing, for golden.txt."
    )

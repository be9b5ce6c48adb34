"""Suffixes of the names of raw files."""

from pathlib import PurePosixPath

from hypothesis import assume, given
from hypothesis import strategies as st

from lakebed.arrow.reading.files import last_suffix


@given(st.text("a.b/: é", min_size=1, max_size=9))
def test_a_suffix_is_what_pathlib_takes_for_it(location: str) -> None:
    assume(not location.endswith(("/", "/.")) and location != ".")  # names of folders

    assert last_suffix(location) == PurePosixPath(location).suffix

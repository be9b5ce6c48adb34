"""Which keys a store takes."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidNameError
from lakebed.store import validate_key
from lakebed.store.base import directory_prefix, is_listed
from lakebed.store.posix import PosixStore

components = st.text(min_size=1, max_size=20)


def is_legal(key: str) -> bool:
    try:
        return validate_key(key) == key
    except InvalidNameError:
        return False


@given(st.lists(components, min_size=1, max_size=4).map("/".join).filter(is_legal))
def test_every_legal_key_is_kept_and_listed_by_a_directory(key: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = PosixStore(root, durable=False)

        store.create(key, key.encode())

        assert [entry.key for entry in store.list()] == [key]
        assert store.get(key).data == key.encode()


@given(st.text(max_size=30))
def test_listing_shows_exactly_the_legal_keys(key: str) -> None:
    assert is_listed(key) == is_legal(key)


@given(st.text(alphabet="a./\\\n%", max_size=8))
def test_no_legal_key_leaves_its_root(key: str) -> None:
    if is_legal(key):
        assert PosixStore("/lake").local_path(key).resolve().is_relative_to("/lake")


def test_message_says_what_is_wrong_with_the_key() -> None:
    for key, problem in [
        ("a//b", "empty"),
        ("../a", "not a name"),
        (".a", "dot"),
        ("x" * 300, "300"),
    ]:
        with pytest.raises(InvalidNameError, match=problem):
            validate_key(key)


def test_prefix_is_a_directory_with_or_without_a_slash() -> None:
    assert directory_prefix("") == ""
    assert directory_prefix("a/b") == directory_prefix("a/b/") == "a/b/"

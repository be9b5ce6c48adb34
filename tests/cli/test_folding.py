"""Texts and tables of a width: every word, path and command stays whole, or is cut in its middle."""

from hypothesis import given
from hypothesis import strategies as st

from lakebed.cli.folding import cells_of, cut_middle, folded, folded_to

WORDS = st.text(st.sampled_from("ab/-_.=東ö"), min_size=1, max_size=30)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)


@given(SENTENCES, st.integers(5, 60))
def test_lines_hold_the_same_words_and_fit_unless_one_is_longer(text: str, width: int) -> None:
    lines = folded(text, width).split("\n")

    assert " ".join(lines).split() == text.split()
    for line in lines:
        assert cells_of(line) <= width or " " not in line.strip()


@given(SENTENCES, st.integers(5, 60))
def test_lines_of_a_column_always_fit_it(text: str, width: int) -> None:
    assert all(cells_of(line) <= width for line in folded_to(text, width))


@given(WORDS, st.integers(3, 40))
def test_a_word_that_is_cut_keeps_its_beginning_and_its_end(word: str, width: int) -> None:
    cut = cut_middle(word, width)

    assert cells_of(cut) <= width
    assert (cut == word) == (cells_of(word) <= width)
    begin, _, end = cut.partition("…")
    assert word.startswith(begin)
    assert word.endswith(end)


def test_a_command_in_backticks_is_not_broken() -> None:
    text = "Nothing to do there: see `lakebed show lake/events --partitions` for what it holds."

    assert folded(text, 50).split("\n") == [
        "Nothing to do there: see",
        "`lakebed show lake/events --partitions` for what",
        "it holds.",
    ]


def test_lines_that_are_there_stay_and_so_does_their_indent() -> None:
    text = "Next:\n  lakebed show lake/events\n  and a much longer line"

    assert folded(text, 16).split("\n") == [
        *("Next:", "  lakebed show lake/events", "  and a much", "  longer line")
    ]


def test_what_is_no_terminal_gets_the_text_as_it_is() -> None:
    assert folded("word " * 100, None) == "word " * 100

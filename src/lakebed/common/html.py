"""Facts as a small HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakebed.common.shown import cut, visible

MAX_ITEMS = 20
MAX_LENGTH = 1_000  # letters of a fact; names and rules can be of any length


def facts_to_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of two columns with escaped texts.

    >>> facts_to_html("Commit", {"rows": 5})
    '<table><caption>Commit</caption><tr><th>rows</th><td>5</td></tr></table>'
    """
    from html import escape  # late: it loads a list of all entities

    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(visible(cut(str(fact), MAX_LENGTH)))}</td></tr>"
        for name, fact in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def shortened(items: Iterable[str]) -> str:
    """Return items as one text, shortened to a limit, with the number of items left out.

    >>> shortened(["a", "b"])
    'a, b'
    """
    known = list(items)
    left_out = len(known) - MAX_ITEMS
    text = cut(", ".join(known[:MAX_ITEMS]), MAX_LENGTH)
    return f"{text} … and {left_out} more" if left_out > 0 else text

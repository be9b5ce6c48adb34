"""What a browser makes of a page."""

from __future__ import annotations

import html.parser

_EMPTY = ("meta", "br", "col", "input", "link")
_TEXTS = ("td", "th", "caption", "dt", "dd")


class ShownPage(html.parser.HTMLParser):
    """The elements of a page, its links, the cells of its tables by caption, and its facts.

    Attributes:
        elements: Names of all.
        ids: Of those that can be linked to.
        links: What leads elsewhere, in order.
        turns: Those of the links that only show the same in another order.
        targets: What a browser would open or load.
        actions: Where forms lead.
        inputs: What the fields of forms hold, by name.
        tables: Rows of cells, the first of them the head; of two with one caption, the first.
        facts: Names and values of lists of these, in order.
        text: All of it.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.turns: list[str] = []
        self.targets: list[str] = []
        self.actions: list[str] = []
        self.inputs: dict[str, str] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.facts: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self._cell = ""
        self._rows: list[list[str]] = []
        self._name = ""
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        known = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in known)
        self.targets += [known[name] for name in ("href", "src") if name in known]
        if "id" in known:
            self.ids.add(known["id"])
        if tag == "a":
            self.links.append(known["href"])
            if known.get("rel") == "nofollow":
                self.turns.append(known["href"])
        if tag == "form":
            self.actions.append(known["action"])
        if tag == "input":
            self.inputs[known["name"]] = known["value"]
        if tag not in _EMPTY:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in _TEXTS:
            self._cell = ""

    def handle_data(self, data: str) -> None:
        self._cell += data
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag in ("td", "th"):
            self._rows[-1].append(self._cell)
        if tag in ("caption", "dt"):
            self._name = self._cell
        if tag == "dd":
            self.facts.append((self._name, self._cell))
        if tag == "table":
            self.tables.setdefault(self._name, self._rows)

    def fact(self, name: str) -> str:
        """Return the first fact of a name."""
        return next(value for known, value in self.facts if known == name)

    def rows(self, caption: str) -> list[dict[str, str]]:
        """Return the rows of a table, by the names in its head."""
        head, *rows = self.tables[caption]
        return [dict(zip(head, row, strict=True)) for row in rows]

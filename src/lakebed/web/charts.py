"""Charts of plain records, as SVG with the colours of the page.

Each chart has a text for screen readers; the page has a table of its numbers beside it.
"""

from __future__ import annotations

import datetime as dt
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.web.markup import Markup, element, short, wide

WIDTH = 720
_LABELS = 190  # pixels for the labels on the left
_ROW = 20
_LETTER = 6.7  # pixels of a letter of a label; the font is monospaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart.

    Attributes:
        label: Label before the bar.
        value: Length of the bar.
        text: Text after the bar.
    """

    label: str
    value: float
    text: str


def bars(title: str, records: Sequence[Bar]) -> Markup:
    """Return horizontal bars, each with its label before it and its text after it."""
    most = max((record.value for record in records), default=0) or 1
    room = WIDTH - _LABELS - 110
    rows: list[Markup] = []
    for position, record in enumerate(records):
        y = position * _ROW
        width = max(1.0, room * record.value / most) if record.value else 0.0
        rows += [
            _label(y + 14, record.label),
            element(
                "rect",
                x=_LABELS,
                y=y + 3,
                width=f"{width:.1f}",
                height=_ROW - 6,
                class_="bar",
            ),
            _text(_LABELS + width + 6, y + 14, record.text),
        ]
    return _picture(title, len(records) * _ROW + 4, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A bin of a histogram.

    Attributes:
        label: Lower bound of the bin.
        count: Number of values in the bin.
        is_target: True if values should be in this bin.
    """

    label: str
    count: int
    is_target: bool = False


def histogram(title: str, bins: Sequence[Bin]) -> Markup:
    """Return vertical bars; a band marks the bins that values should be in."""
    height, base = 150, 130
    most = max((each.count for each in bins), default=0) or 1
    step = WIDTH / max(len(bins), 1)
    parts: list[Markup] = []
    for position, each in enumerate(bins):
        x = position * step
        tall = (base - 20) * each.count / most
        if each.is_target:
            parts.append(
                element("rect", x=f"{x:.1f}", y=0, width=f"{step:.1f}", height=base, class_="band")
            )
        parts += [
            element(
                "rect",
                x=f"{x + 3:.1f}",
                y=f"{base - tall:.1f}",
                width=f"{step - 6:.1f}",
                height=f"{tall:.1f}",
                class_="bar",
            ),
            _text(x + step / 2, base + 14, each.label, anchor="middle"),
        ]
        if each.count:
            parts.append(_text(x + step / 2, base - tall - 4, f"{each.count:,}", anchor="middle"))
    return _picture(title, height, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a timeline.

    Attributes:
        lane: Kind of the event; each kind has its own line.
        at: Time of the event.
        size: Size of the dot.
        text: Text under the mouse pointer.
    """

    lane: str
    at: dt.datetime
    size: float
    text: str


def timeline(title: str, events: Sequence[Event]) -> Markup:
    """Return a timeline with a dot for each event and a line for each kind."""
    lanes = list(dict.fromkeys(event.lane for event in events))
    first = min((event.at for event in events), default=None)
    last = max((event.at for event in events), default=None)
    if first is None or last is None:
        return _picture(title, _ROW, [_text(0, 14, "nothing yet")])
    span = (last - first).total_seconds() or 1.0
    most = max(event.size for event in events) or 1.0
    room = WIDTH - _LABELS - 20
    parts: list[Markup] = []
    for position, lane in enumerate(lanes):
        y = position * _ROW + _ROW / 2
        parts += [
            _label(y + 4, lane),
            element("line", x1=_LABELS, y1=y, x2=WIDTH - 10, y2=y, class_="rule"),
        ]
    for event in events:
        position = lanes.index(event.lane)
        x = _LABELS + 8 + room * (event.at - first).total_seconds() / span
        parts.append(
            element(
                "circle",
                element("title", event.text),
                cx=f"{x:.1f}",
                cy=position * _ROW + _ROW / 2,
                r=f"{2.5 + 4.5 * math.sqrt(max(event.size, 0) / most):.1f}",
                class_=f"lane{position % 8}",
            )
        )
    bottom = len(lanes) * _ROW + 16
    begin, end = axis_labels(first, last)
    parts.append(_text(_LABELS, bottom, begin if end else f"{begin} UTC"))
    if end:
        parts.append(_text(WIDTH - 10, bottom, f"{end} UTC", anchor="end"))
    return _picture(title, bottom + 6, parts)


def axis_labels(first: dt.datetime, last: dt.datetime) -> tuple[str, str]:
    """Return the labels of both ends of a time axis, as exact as they need to be to differ.

    The second label is empty if both ends are the same time.

    >>> noon = dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC)
    >>> axis_labels(noon, noon + dt.timedelta(hours=1))
    ('2026-09-01 12:00', '2026-09-01 13:00')
    >>> axis_labels(noon, noon + dt.timedelta(seconds=1))
    ('2026-09-01 12:00:00', '2026-09-01 12:00:01')
    >>> axis_labels(noon, noon)
    ('2026-09-01 12:00', '')
    """
    if first == last:
        return f"{first:%Y-%m-%d %H:%M}", ""
    for exactness in ("minutes", "seconds", "milliseconds"):
        begin, end = (each.replace(tzinfo=None).isoformat(" ", exactness) for each in (first, last))
        if begin != end:
            return begin, end
    return f"{first:%Y-%m-%d %H:%M:%S.%f}", f"{last:%Y-%m-%d %H:%M:%S.%f}"


def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Mapping[tuple[int, int], float]
) -> Markup:
    """Return a field of squares; the larger the value, the stronger the colour.

    Args:
        title: Title of the chart.
        rows: Labels from top to bottom.
        columns: Labels from left to right; only the first and the last are shown, the last if it
            differs.
        values: Values by positions of row and column.
    """
    most = max(values.values(), default=0) or 1
    step = (WIDTH - _LABELS - 10) / max(len(columns), 1)
    parts = [_label(position * 16 + 12, label) for position, label in enumerate(rows)]
    for (row, column), value in values.items():
        parts.append(
            element(
                "rect",
                element("title", f"{rows[row]}, {columns[column]}: {value:,.0f}"),
                x=f"{_LABELS + column * step:.1f}",
                y=row * 16 + 1,
                width=f"{max(step - 1, 1):.1f}",
                height=14,
                class_="bar",
                opacity=f"{0.15 + 0.85 * value / most:.2f}",
            )
        )
    bottom = len(rows) * 16 + 14
    if columns:
        parts.append(_text(_LABELS, bottom, columns[0]))
        if columns[-1] != columns[0]:
            parts.append(_text(WIDTH - 10, bottom, columns[-1], anchor="end"))
    return _picture(title, bottom + 6, parts)


def _picture(title: str, height: float, parts: Sequence[Markup]) -> Markup:
    return wide(
        title,
        element(
            "svg",
            element("title", title),
            *parts,
            viewBox=f"0 0 {WIDTH} {height:.0f}",
            role="img",
            aria_label=title,
            class_="chart",
        ),
    )


def _text(x: float, y: float, text: str, *, anchor: str | None = None) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _label(y: float, text: str) -> Markup:
    """Return the label before a row."""
    return element(
        "text",
        _fitted(text),
        x=f"{_LABELS - 8:.1f}",
        y=f"{y:.1f}",
        text_anchor="end",
        class_="label",
    )


def _fitted(label: str) -> str:
    """Return a label; of a long one, only the end, in which partitions differ.

    >>> _fitted("day=2013-06-04"), _fitted("/".join(["year=2013"] * 4)), len(_fitted("日" * 40))
    ('day=2013-06-04', '…r=2013/year=2013/year=2013', 14)
    """
    room = int((_LABELS - 8) / _LETTER)
    text = short(label)
    if sum(map(_width, text)) <= room:
        return text
    kept, used = 0, 1
    while used + _width(text[-kept - 1]) <= room:
        kept += 1
        used += _width(text[-kept])
    return "…" + text[-kept:]


def _width(letter: str) -> int:
    """Return the width of a letter: 2 for wide scripts and rare symbols, else 1."""
    if letter.isascii():
        return 1
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1

"""A table of rows of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lakebed.arrow.as_python import plain_columns
from lakebed.common.shown import counted
from lakebed.web.first_rows import ShownRows
from lakebed.web.markup import Markup, data_cell, data_head, data_table, element, row_head


def table_of(
    rows: pa.Table,
    caption: str,
    *,
    heads: Sequence[str] | None = None,
    link: Callable[[int], str] | None = None,
    sorted_by: str = "",
    direction: str = "",
) -> Markup:
    """Return rows as a table whose first column numbers them.

    Args:
        rows: The rows.
        caption: Caption of the table.
        heads: Texts of the columns' heads; None for their names.
        link: Returns the address that the number of a row leads to, by its position.
        sorted_by: Name of the column that the rows are sorted by.
        direction: Direction of that order: ascending or descending.
    """
    columns = plain_columns(rows)
    texts = rows.column_names if heads is None else heads

    def cells(row: int) -> Sequence[Markup]:
        number = f"{row + 1}"
        first = number if link is None else element("a", number, href=link(row), class_="file")
        return [row_head(first), *(data_cell(column[row]) for column in columns)]

    named = [
        data_head(
            text,
            is_number=_is_number(field.type),
            sorted_=direction if field.name == sorted_by else None,
        )
        for text, field in zip(texts, rows.schema, strict=True)
    ]
    return data_table(caption, [data_head("row"), *named], map(cells, range(rows.num_rows)))


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in checks)


def caption_of(read: ShownRows) -> str:
    """Return the caption of the first rows of a view, with their total number if it is known."""
    count = read.rows.num_rows
    if read.total is not None and read.total == count:
        return counted(count, "row")
    if read.total is not None:
        return f"{count:,} of {counted(read.total, 'row')}"
    return f"The first {counted(count, 'row')}" if read.has_more else counted(count, "row")

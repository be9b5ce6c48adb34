"""Texts of cells in the form that typed reading takes."""

import csv
import io

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.reading.cells import as_csv

NAMES = ("a", "b")
rows = st.lists(st.tuples(*[st.none() | st.text("x\n\",'é", max_size=3)] * len(NAMES)), max_size=3)


@given(st.lists(rows, min_size=1, max_size=4))
def test_a_table_as_csv_is_its_rows_however_it_is_divided(parts: list) -> None:
    schema = pa.schema(dict.fromkeys(NAMES, pa.string()))
    tables = [
        pa.Table.from_arrays(
            [pa.array(column, pa.string()) for column in zip(*part, strict=True)], schema=schema
        )
        if part
        else schema.empty_table()
        for part in parts
    ]

    data = as_csv(pa.concat_tables(tables))

    read = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert read == [[cell or "" for cell in row] for part in parts for row in part]

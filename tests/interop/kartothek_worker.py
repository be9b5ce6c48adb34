"""Answers calls with kartothek, in kartothek's own environment: one line of JSON in, one out.

It runs on Python 3.9, the last that kartothek 5.3 and its pyarrow know.
"""

from __future__ import annotations

import warnings
from typing import Any

import kartothek
import numpy as np
import pandas as pd
import wire
from kartothek.core.dataset import DatasetMetadata
from kartothek.io import eager
from kartothek.io_components.read import dispatch_metapartitions

warnings.simplefilter("ignore")


def version() -> str:
    """Return the version of kartothek."""
    return kartothek.__version__


def read(
    location: str,
    name: str,
    predicates: Any = None,
    columns: Any = None,
    table: str = "",
) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    frame = eager.read_table(
        name,
        location,
        table=table or _tables(location, name)[0],
        predicates=_tuples(predicates),
        columns=columns,
        dates_as_object=True,
    )
    names = list(frame.columns)
    columns_ = [[_plain(value) for value in frame[column]] for column in names]
    return [dict(zip(names, row)) for row in zip(*columns_)]  # noqa: B905 - Python 3.9


def store_tables(
    location: str, name: str, tables: dict[str, list[dict[str, Any]]], **options: Any
) -> None:
    """Write a dataset of several tables."""
    eager.store_dataframes_as_dataset(
        store=location,
        dataset_uuid=name,
        dfs=[{table: pd.DataFrame(rows) for table, rows in tables.items()}],
        **options,
    )


def store(location: str, name: str, rows: list[dict[str, Any]], **options: Any) -> None:
    """Write a dataset of one table."""
    eager.store_dataframes_as_dataset(
        store=location, dataset_uuid=name, dfs=[pd.DataFrame(rows)], **options
    )


def update(location: str, name: str, rows: list[dict[str, Any]], table: str = "data") -> None:
    """Add rows to a dataset."""
    known = DatasetMetadata.load_from_store(name, _store(location))
    eager.update_dataset_from_dataframes(
        [{"data": [(table, pd.DataFrame(rows))]}],
        store=location,
        dataset_uuid=name,
        partition_on=list(known.partition_keys),
    )


def indices(location: str, name: str) -> list[str]:
    """Return the columns that have an inverted index."""
    return sorted(DatasetMetadata.load_from_store(name, _store(location)).indices)


def query_index(location: str, name: str, column: str, value: Any) -> list[str]:
    """Return the labels that an inverted index has for a value."""
    known = DatasetMetadata.load_from_store(name, _store(location)).load_all_indices(
        _store(location)
    )
    return sorted(known.indices[column].query(value))


def dispatch(location: str, name: str, predicates: Any) -> list[str]:
    """Return the labels of the files that kartothek would read for a predicate."""
    parts = dispatch_metapartitions(name, _store(location), predicates=_tuples(predicates))
    return sorted(part.label for part in parts)


def _tables(location: str, name: str) -> list[str]:
    return sorted(DatasetMetadata.load_from_store(name, _store(location)).tables)


def _store(location: str) -> Any:
    from storefact import get_store_from_url

    return get_store_from_url(location)


def _tuples(predicates: Any) -> Any:
    return predicates and [[tuple(term) for term in terms] for terms in predicates]


def _plain(value: Any) -> Any:
    """Return what pandas holds as plain Python; pandas knows no null beside NaN."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        assert value.nanosecond == 0
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value


CALLS = {
    call.__name__: call
    for call in (
        version,
        read,
        store,
        store_tables,
        update,
        indices,
        query_index,
        dispatch,
    )
}


if __name__ == "__main__":
    wire.answer(CALLS)

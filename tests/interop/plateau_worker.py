"""Answers calls with plateau, in plateau's own environment: one line of JSON in, one out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import plateau
import wire
from plateau.core.dataset import DatasetMetadata
from plateau.io import eager
from plateau.io_components.read import dispatch_metapartitions

warnings.simplefilter("ignore")


def version() -> str:
    """Return the version of plateau."""
    return plateau.__version__


def read(
    location: str, name: str, predicates: Any = None, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a dataset."""
    frame = eager.read_table(
        name, location, predicates=_tuples(predicates), columns=columns, dates_as_object=True
    )
    names = list(frame.columns)
    columns_ = [[_plain(value) for value in frame[column]] for column in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns_, strict=True)]


def types(location: str, name: str) -> dict[str, str]:
    """Return the pandas types of a dataset's columns."""
    frame = eager.read_table(name, location, dates_as_object=True)
    return {column: str(kind) for column, kind in frame.dtypes.items()}


def store(location: str, name: str, rows: list[dict[str, Any]], **options: Any) -> None:
    """Write a dataset."""
    eager.store_dataframes_as_dataset(
        store=location, dataset_uuid=name, dfs=[_frame(rows)], **options
    )


def update(
    location: str,
    name: str,
    rows: list[dict[str, Any]],
    delete_scope: list[dict[str, Any]] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Add rows to a dataset and take partitions out, in one commit."""
    found = DatasetMetadata.load_from_store(name, _store(location))
    eager.update_dataset_from_dataframes(
        [_frame(rows)] if rows else [],
        store=location,
        dataset_uuid=name,
        table_name=found.table_name,
        partition_on=list(found.partition_keys),
        delete_scope=delete_scope,
        metadata=metadata,
    )


def build_indices(location: str, name: str, columns: list[str]) -> None:
    """Add inverted indices to a dataset."""
    eager.build_dataset_indices(store=location, dataset_uuid=name, columns=columns)


def indices(location: str, name: str) -> list[str]:
    """Return the columns that have an inverted index."""
    return sorted(DatasetMetadata.load_from_store(name, _store(location)).secondary_indices)


def query_index(location: str, name: str, column: str, value: Any) -> list[str]:
    """Return the labels that an inverted index has for a value."""
    found = DatasetMetadata.load_from_store(name, _store(location), load_all_indices=True)
    return sorted(found.indices[column].query(value))


def dispatch(location: str, name: str, predicates: Any) -> list[str]:
    """Return the labels of the files that plateau would read for a predicate."""
    parts = dispatch_metapartitions(name, _store(location), predicates=_tuples(predicates))
    return sorted(part.label for part in parts)


def metadata(location: str, name: str) -> dict[str, Any]:
    """Return the metadata entries of a dataset that are not Lakebed's."""
    entries = DatasetMetadata.load_from_store(name, _store(location)).metadata
    return {key: value for key, value in entries.items() if not key.startswith("lakebed.")}


def collect_garbage(location: str, name: str) -> None:
    """Delete what the dataset does not refer to."""
    eager.garbage_collect_dataset(dataset_uuid=name, store=location)


def _store(location: str) -> Any:
    from minimalkv import get_store_from_url

    return get_store_from_url(location)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    # plateau cannot update a column of zoned nanoseconds, which pandas makes by default.
    for column, kind in frame.dtypes.items():
        if isinstance(kind, pd.DatetimeTZDtype):
            frame[column] = frame[column].astype("datetime64[us, UTC]")
    return frame


def _tuples(predicates: Any) -> Any:
    return predicates and [[tuple(term) for term in terms] for terms in predicates]


def _plain(value: Any) -> Any:
    """Return what pandas holds as plain Python; pandas knows no null beside NaN."""
    if isinstance(value, np.ndarray | list | tuple):
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
        types,
        store,
        update,
        build_indices,
        indices,
        query_index,
        dispatch,
        metadata,
        collect_garbage,
    )
}


if __name__ == "__main__":
    wire.answer(CALLS)

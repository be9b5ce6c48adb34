"""The actions with plateau, in its own environment."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import layout
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from minimalkv import get_store_from_url
from plateau.core.dataset import DatasetMetadata
from plateau.io import eager

warnings.simplefilter("ignore")

NAME = "t"


def prepare(location: str, count: int) -> dict[str, Any]:
    """Write the metadata, an index and one real file, from which plateau takes the rest."""
    root = Path(location)
    rows = {"day": [layout.day_of(0)] * 2, "id": [0, 1], "amount": [0.5, 99.5]}
    eager.store_dataframes_as_dataset(
        store=f"hfs://{location}?create_if_missing=true",
        dataset_uuid=NAME,
        dfs=[pd.DataFrame(rows)],
        partition_on=["day"],
        secondary_indices=["id"],
    )
    head = root / f"{NAME}.by-dataset-metadata.json"
    document = json.loads(head.read_text())
    labels = [f"day={layout.day_of(file).isoformat()}/{file:032x}" for file in range(count)]
    document["partitions"] = {
        label: {"files": {"table": f"{NAME}/table/{label}.parquet"}} for label in labels
    }
    head.write_text(json.dumps(document))
    values, lists = [], []
    for file in range(count):
        for value in layout.ids_of(file, count):
            values.append(value)
            lists.append([labels[file]])
    table = pa.table(
        {"id": pa.array(values, pa.int64()), "partition": pa.array(lists, pa.list_(pa.string()))}
    )
    pq.write_table(table, root / document["indices"]["id"], row_group_size=10_000)
    return {}


def open_and_prune(location: str, count: int) -> dict[str, Any]:
    """Open the dataset in this process for the first time, and choose the files of one day."""
    watch = layout.Stopwatch()
    with watch:
        store = get_store_from_url(f"hfs://{location}")
        found = DatasetMetadata.load_from_store(NAME, store).load_partition_indices()
        labels = found.query(day=layout.day_to_ask(count))
    return {"seconds": watch.seconds, "kept": len(labels)}


def lookup(location: str, count: int, number: int) -> dict[str, Any]:
    """Choose the files that hold some ids."""
    watch = layout.Stopwatch()
    ids = layout.ids_to_ask(count, number)
    with watch:
        store = get_store_from_url(f"hfs://{location}")
        found = DatasetMetadata.load_from_store(NAME, store).load_index("id", store)
        labels = {label for one in ids for label in found.query(id=one)}
    return {"seconds": watch.seconds, "kept": len(labels)}


def commit(location: str, count: int, number: int) -> dict[str, Any]:
    """Append one small file, a few times."""
    seconds = []
    for i in range(number):
        rows = pd.DataFrame(layout.rows_of_new_file(count + i))
        watch = layout.Stopwatch()
        with watch:
            eager.update_dataset_from_dataframes(
                [rows],
                store=f"hfs://{location}",
                dataset_uuid=NAME,
                partition_on=["day"],
                secondary_indices=["id"],
            )
        seconds.append(watch.seconds)
    return {"seconds": sorted(seconds)[len(seconds) // 2], "all": seconds}


layout.answer(
    {"prepare": prepare, "open_and_prune": open_and_prune, "lookup": lookup, "commit": commit}
)

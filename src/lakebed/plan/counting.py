"""Count rows of a plan without reading them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakebed.plan.plan import Scan
from lakebed.plan.search import facts_take_less
from lakebed.state import file_table
from lakebed.store.base import Store


def take_known_rows(store: Store, plan: Scan) -> tuple[int, Scan]:
    """Count the rows of unfiltered files from the file table.

    Returns:
        The number, and the plan of the files that remain to be counted.

    Cost:
        Nothing if planning has read the facts, else one GET for each segment of the file table,
        which is not read if that would be more work than opening the files.
    """
    whole = [file for file in plan.files if not file.is_filtered]
    counts = {file.label: file.row_count for file in whole}
    unknown = [label for label, count in counts.items() if count is None]
    if facts_take_less(plan.file_table, len(unknown)):
        labels = pa.array(unknown, pa.large_string())
        facts = file_table.find(store, plan.file_table, labels, {})
        counts.update(zip(unknown, facts.row_count.to_pylist(), strict=True))
    files = tuple(file for file in plan.files if counts.get(file.label) is None)
    known = sum(count for count in counts.values() if count is not None)
    return known, replace(plan, files=files)

"""Places that ask a state for the labels of all its files: each takes time for a million files.

`State.live` answers what most callers need, such as a number or which of some files are live. A
state that does not list its files can only answer those.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "lakebed"
# Names under which modules have a state.
_STATES = "_?state|base|now|expected|before|after|high|low|last|other|one|past"
_ASKS = re.compile(rf"\b(?:{_STATES})\.labels\b")

# Less is better: a new place asks `State.live`. The rooms below `state` know no states.
ALL_LABELS = {
    "batches/changes.py": 4,
    "batches/diff.py": 4,
    "batches/listing.py": 1,
    "dataset.py": 1,
    "pipeline/ingest.py": 1,
    "plan/partition_totals.py": 2,
    "plan/paths.py": 10,
    "plan/search.py": 2,
    "state/codec.py": 1,
    "state/committing.py": 1,
    "state/conflicts.py": 5,
    "state/past.py": 2,
    "state/readable.py": 1,
    "state/reader.py": 2,
    "state/snapshot.py": 2,
    "state/state.py": 8,
    "state/tree/erased_tree.py": 1,
    "state/tree/planting.py": 2,
    "tables/delta/to_delta.py": 2,
    "tables/hive/statements.py": 1,
    "tables/hive/to_hive.py": 1,
    "tables/iceberg/catalog_plans.py": 1,
    "tables/iceberg/catalog_writes.py": 1,  # of adopted files alone
    "tables/iceberg/to_iceberg.py": 4,
    "tables/trees/kartothek_head.py": 3,
    "upkeep/upkeep_steps.py": 1,
    "web/file_lineage.py": 1,
    "work/check.py": 8,
    "work/commits.py": 1,
    "work/erased_objects.py": 1,
    "work/erased_records.py": 1,  # if a staged batch replaces partitions
    "work/erasure.py": 2,
    "work/indexing.py": 8,
    "work/ingest/replacement.py": 1,
    "work/inventory.py": 2,
    "work/judging.py": 1,
    "work/merge.py": 2,
    "work/owned.py": 1,
    "work/rollback.py": 7,
}


def places() -> dict[str, int]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        count = len(_ASKS.findall(path.read_text(encoding="utf-8")))
        if count and not name.startswith("index/"):
            found[name] = count
    return found


def test_no_further_place_asks_for_all_labels() -> None:
    found = places()

    more = {name: count for name, count in found.items() if count > ALL_LABELS.get(name, 0)}
    assert more == {}, "ask `State.live` for what is needed"


def test_list_of_places_has_none_that_is_gone() -> None:
    assert places() == ALL_LABELS

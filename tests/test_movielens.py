"""Real ratings, a few on most of 3,840 days, by fixed ranges of days."""

import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.thorough

_script = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "movielens.py"))
DAY_S = 86_400


@pytest.fixture(scope="module")
def ratings() -> pa.Table:
    return _script["ratings"]()


@pytest.mark.parametrize(
    ("days", "partitions", "most_rows", "fewest_rows"),
    [(7, 991, 2_859, 1), (30, 248, 4_260, 1), (90, 85, 5_882, 3)],
)
def test_each_rating_is_in_the_one_file_of_its_range_of_days(
    tmp_path: Path,
    ratings: pa.Table,
    days: int,
    partitions: int,
    most_rows: int,
    fewest_rows: int,
) -> None:
    dataset = _script["load"](lakebed.open_repository(tmp_path), ratings, days)

    found = {one.values["from_s"]: one for one in dataset.inspect.partitions()}
    counts = [one.row_count for one in found.values()]
    starts, expected = np.unique(
        ratings.column("rated_at").to_numpy() // (days * DAY_S) * (days * DAY_S),
        return_counts=True,
    )
    assert len(dataset.files()) == len(found) == partitions
    assert (max(counts), min(counts), sum(counts)) == (most_rows, fewest_rows, 100_004)
    assert {start: one.row_count for start, one in found.items()} == dict(
        zip(starts.tolist(), expected.tolist(), strict=True)
    )
    for batch in dataset.record_batches(["from_s", "rated_at"]):
        offsets = batch.column("rated_at").to_numpy() - batch.column("from_s").to_numpy()
        assert offsets.min() >= 0
        assert offsets.max() < days * DAY_S


def test_a_month_of_ratings_is_read_from_the_ranges_that_it_touches(
    tmp_path: Path, ratings: pa.Table
) -> None:
    dataset = _script["load"](lakebed.open_repository(tmp_path), ratings, 30)
    first, last = 946_684_800, 949_363_200  # January 2000

    view = dataset.where(f"rated_at >= {first} AND rated_at < {last}")

    when = ratings.column("rated_at").to_numpy()
    assert view.count() == int(((when >= first) & (when < last)).sum()) > 0
    assert len(view.plan().files) == 2

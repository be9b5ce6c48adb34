"""plateau reads what Lakebed writes, rows and predicates."""

from __future__ import annotations

import pytest
from shown_rows import as_pandas_sees, by_id
from specimens import columns_of

import lakebed

pytestmark = pytest.mark.interop


def test_plateau_reads_every_row_and_column(plateau, lake, specimen):
    dataset = lakebed.open_repository(lake).open(specimen.name)
    expected = as_pandas_sees(
        dataset.arrow(columns_of(dataset)), dataset.descriptor.partition_types
    )

    found = plateau.read(lake, specimen.name)

    assert by_id(found) == by_id(expected)
    assert bool(found) == (not specimen.name.startswith("empt"))


def test_plateau_finds_the_columns_of_a_dataset_without_rows(plateau, lake):
    columns = columns_of(lakebed.open_repository(lake).open("empty"))

    types = plateau.types(lake, "empty")

    assert sorted(types) == sorted(columns)
    assert types["id"] == "int64"
    assert types["price"] == "float64"
    assert types["at"] == "datetime64[ns, UTC]"
    assert types["wall"] == "datetime64[ns]"


def test_plateau_and_lakebed_agree_on_predicates(plateau, lake, specimen):
    dataset = lakebed.open_repository(lake).open(specimen.name)
    ours = {
        str(dnf): sorted(dataset.where(dnf).arrow(["id"]).column("id").to_pylist())
        for dnf in specimen.predicates
    }

    found = {str(dnf): plateau.ids(lake, specimen.name, dnf) for dnf in specimen.predicates}

    assert found == ours


def test_plateau_selects_one_batch(plateau, lake):
    dataset = lakebed.open_repository(lake).open("types")
    first, second = (commit.batch_id for commit in dataset.history() if commit.batch_id)

    found = plateau.ids(lake, "types", [[("batch_id", "==", first)]])

    assert found == [0, 1, 2, 3, 4, 5]
    assert plateau.ids(lake, "types", [[("batch_id", "==", second)]]) == [6, 7, 8, 9]
    assert plateau.ids(lake, "types", [[("batch_id", ">", second)]]) == []


def test_plateau_reads_one_column(plateau, lake):
    found = plateau.read(lake, "by-word", columns=["word"])

    assert sorted(row["word"] for row in found) == [f"wörd {number}" for number in range(10)]

"""Random statements on a table of a catalog, with reruns and evolutions, against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from catalog_changes import PLACES, started

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

STEPS = ["update", "update", "delete", "merge", "merge", "rerun", "select", "fail"]


@pytest.mark.parametrize(
    ("steps", "seed"),
    [(4, 1), *(pytest.param(60, seed, marks=pytest.mark.long) for seed in range(2, 8))],
)
@pytest.mark.parametrize("place", PLACES)
def test_random_statements_change_the_rows_of_a_model(
    spark: Any, tmp_path: Path, place: str, steps: int, seed: int
):
    with started(spark, tmp_path, place, seed * 10 + list(PLACES).index(place)) as model:
        names = []
        for number in range(steps):
            if number % 3 == 2:
                names.append(model.random.choice(["evolve", "evolve", "compact"]))
            names.append(model.random.choice(STEPS))

        model.play(names)

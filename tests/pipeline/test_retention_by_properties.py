"""A pipeline without a retention of its own uses that of its dataset."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sales_days import KEEP_DAYS, Sales

import lakebed
from lakebed import Pipeline
from lakebed.errors import InvalidInputError

RULE = {
    "retention.keep": f"{KEEP_DAYS}d",
    "retention.delete_where": "shop = 'test'",
}


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    sales = Sales(root=tmp_path, tables="delta = true\n")
    sales.declare()
    sales.write_day("a", 1, KEEP_DAYS + 5)
    return sales


def without_retention(sales: Sales, properties: dict[str, str] | None = None) -> Pipeline:
    """Return the pipeline without `[retention]`, which creates the dataset with properties."""
    text = sales.file.read_text()
    before, _, after = text.partition("[retention]")
    text = f"{before}{after[after.index('[cleanup]') :]}"
    if properties is not None:
        listed = ", ".join(f'"{key}" = "{value}"' for key, value in properties.items())
        text = text.replace(
            'partition_by = "day"\n', f'partition_by = "day"\nproperties = {{{listed}}}\n'
        )
    sales.file.write_text(text)
    return Pipeline.from_toml(sales.file)


def set_properties(sales: Sales, properties: dict[str, str]) -> None:
    sales.dataset().evolve(
        lambda old: dataclasses.replace(old, properties={**old.properties, **properties})
    )


def test_without_any_retention_there_is_no_step(sales: Sales) -> None:
    report = without_retention(sales).run()

    assert "retain" not in [step.step for step in report.steps]
    assert len(sales.dataset().arrow()) == 8


def test_the_property_of_the_dataset_is_used(sales: Sales) -> None:
    pipeline = without_retention(sales)
    pipeline.run(only="ingest")
    set_properties(sales, RULE)

    planned = pipeline.run(dry_run=True)["retain"]
    done = pipeline.run()["retain"]

    assert planned.facts["row_count"] == done.facts["row_count"] == 5
    assert sales.rows() == sales.expected()
    assert pipeline.run()["retain"].status == "nothing"
    assert pipeline.run(only="retain").is_ok


def test_a_new_dataset_is_created_with_it(sales: Sales) -> None:
    pipeline = without_retention(sales, RULE)

    report = pipeline.run()

    assert report["retain"].facts["row_count"] == 5
    assert sales.rows() == sales.expected()
    # The upkeep of the repository does what the pipeline does.
    maintained = lakebed.open_repository(sales.lake).maintain(names="sales")
    assert maintained["sales"]["retain"].status == "nothing"


def test_equal_ones_may_stand_in_both_places(sales: Sales) -> None:
    pipeline = sales.declare()
    pipeline.run(only="ingest")
    set_properties(sales, RULE)

    assert pipeline.run()["retain"].facts["row_count"] == 5


def test_different_ones_are_refused_before_anything_is_done(sales: Sales) -> None:
    pipeline = sales.declare()
    pipeline.run(only="ingest")
    set_properties(sales, {"retention.keep": "3d"})
    version, rows = sales.dataset().version, sales.rows()
    sales.write_day("b", 1)

    for dry_run in (True, False):
        with pytest.raises(InvalidInputError, match="'keep 3d'") as caught:
            pipeline.run(dry_run=dry_run)
        assert "one place" in caught.value.hint
    assert (sales.dataset().version, sales.rows()) == (version, rows)


def test_different_ones_in_one_file_are_refused_with_the_line(sales: Sales) -> None:
    text = sales.file.read_text()
    sales.file.write_text(
        text.replace(
            'partition_by = "day"\n',
            'partition_by = "day"\nproperties = {"retention.keep" = "3d"}\n',
        )
    )

    with pytest.raises(InvalidInputError, match=r"line \d+, \[retention\]: The pipeline declares"):
        Pipeline.from_toml(sales.file)


def test_protections_win_over_the_property(sales: Sales) -> None:
    pipeline = without_retention(sales, RULE)
    pipeline.run(only="ingest")
    version, rows = sales.dataset().version, sales.rows()
    sales.dataset().protections.add(version=version, reason="audit")

    report = pipeline.run()

    assert report["retain"].facts["protection_count"] == 1
    assert sales.rows() == sales.expected()
    assert len(sales.dataset().at(version=version).arrow()) == sum(rows.values())

"""Retention as properties of a dataset: their language, and what is refused with which remedy."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from heads import rename_property

import lakebed
from lakebed import Dataset, DatasetDescriptor, RetentionRule
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.retention import facts_of_retention, in_force, rule_in

SCHEMA = pa.schema([("day", pa.date32()), ("seen", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def described(**properties: str) -> DatasetDescriptor:
    named = {f"retention.{key}": value for key, value in properties.items()}
    return DatasetDescriptor(schema=SCHEMA, partition_by="day", properties=named)


def create(**properties: str) -> Dataset:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return lake.create("d", described(**properties))


def with_property(dataset: Dataset, name: str, value: str) -> lakebed.Commit:
    return dataset.evolve(
        lambda old: dataclasses.replace(old, properties={**old.properties, name: value})
    )


def test_properties_are_the_keys_of_a_pipeline() -> None:
    properties = described(keep="400d", by="seen", delete_where="n < 3").properties

    assert rule_in(properties) == RetentionRule(keep="400d", by="seen", delete_where="n < 3")
    assert rule_in({"owner": "ops", "retentive": "yes"}) is None


@pytest.mark.parametrize(
    ("properties", "message", "hint"),
    [
        ({"keep": "400"}, "'retention.keep' is wrong: '400' is not a valid age", "such as '7d'"),
        ({"keep": "0d"}, "'retention.keep' is wrong: keep is 0", "Give an age"),
        ({"delete_where": " "}, "'retention.delete_where' is wrong: delete_where is empty", "SQL"),
        ({"by": "seen"}, "'retention.by' is wrong: .*neither keep", "keep"),
        ({"kep": "400d"}, r"Unknown property 'retention\.kep'", r"retention\.keep"),
        ({"raw": "400d"}, r"Unknown property 'retention\.raw'", r"retention\.keep"),
        ({"keep": "4d", "by": "n"}, "'retention.by' is wrong: .*is a long", "a date or a time"),
        ({"keep": "4d", "by": "sen"}, "'retention.by' is wrong: .*no field 'sen'", "'seen'"),
        ({"delete_where": "m < 3"}, "'retention.delete_where' is wrong: Unknown column", "day, "),
    ],
)
def test_mistakes_are_refused_at_creation_and_in_an_update(
    properties: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as created:
        create(**properties)
    assert hint.replace("\\", "") in created.value.hint
    dataset = create()
    named = {f"retention.{key}": value for key, value in properties.items()}
    with pytest.raises(InvalidInputError, match=message):
        dataset.evolve(lambda old: dataclasses.replace(old, properties=named))
    assert dataset.version == 0


def test_the_bare_name_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidInputError, match="Unknown property 'retention'") as caught:
        with_property(create(), "retention", "400d")
    assert "retention.keep" in caught.value.hint


def test_a_dataset_without_a_time_cannot_keep_by_one() -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    with pytest.raises(InvalidInputError, match="no partitions"):
        lake.create("d", pa.schema([("n", pa.int64())]), properties={"retention.keep": "4d"})


@pytest.mark.parametrize(
    ("properties", "edit"),
    [
        ({"keep": "4d", "by": "seen"}, lambda old: old.drop_field("seen")),
        ({"keep": "4d", "by": "seen"}, lambda old: old.rename_field("seen", "seen_at")),
        ({"delete_where": "n < 3"}, lambda old: old.drop_field("n")),
    ],
)
def test_a_field_that_the_retention_names_stays(properties, edit) -> None:
    dataset = create(**properties)

    with pytest.raises(LakebedError, match="retention"):
        dataset.evolve(edit)
    assert dataset.version == 0
    dataset.evolve(lambda old: dataclasses.replace(edit(old), properties={}))
    assert facts_of_retention(dataset.descriptor) == {}


def test_properties_of_an_older_release_do_not_stop_other_updates(tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    lake.create("d", described(keep="4d"))
    rename_property(lake.store, "d", "retention.keep", "retention.kept")
    dataset = lake.open("d")

    dataset.evolve(lambda old: old.add_field("m", "long"))

    with pytest.raises(InvalidInputError, match=r"retention\.kept"):
        with_property(dataset, "retention.keep", "4d")
    assert "Unknown property" in str(facts_of_retention(dataset.descriptor)["retention"])


def test_which_of_two_is_in_force() -> None:
    own = described(keep="400d").properties
    assert in_force(None, {}) is None
    assert in_force(None, own) == RetentionRule(keep="400d")
    assert in_force(RetentionRule(keep="9600h"), own) == RetentionRule(keep="9600h")
    assert in_force(RetentionRule(raw="3d"), own) == RetentionRule(keep="400d", raw="3d")
    for other in (
        RetentionRule(keep="401d"),
        RetentionRule(keep="400d", by="seen"),
        RetentionRule(keep="400d", delete_where="n < 3"),
        RetentionRule(delete_where="n < 3"),
    ):
        with pytest.raises(InvalidInputError, match=r"declares 'keep|declares 'delete") as caught:
            in_force(other, own)
        assert "one place" in caught.value.hint


def test_displays_show_it() -> None:
    dataset = create(keep="400d", by="seen", delete_where="n < 3")

    assert "keep 400d by seen; delete where n &lt; 3" in dataset._repr_html_()
    assert "retention" not in create()._repr_html_()

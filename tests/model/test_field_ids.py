"""Ids of columns: those that Iceberg gives a new table, and the same for as long as a column lives."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import assign_fresh_schema_ids
from table_doors import EVERY_TYPE

from lakebed import by
from lakebed.errors import LakebedError
from lakebed.model.arrow_types import field_ids_in, schema_to_arrow, with_field_ids
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import check_update
from lakebed.model.field_ids import FieldIds
from lakebed.model.lineage import Lineage
from lakebed.model.renaming import with_stored_names
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.tables.iceberg.iceberg_schema import paths_of, schema_of

LONG, INT, TEXT = pa.int64(), pa.int32(), pa.string()


def described(**fields: pa.DataType) -> DatasetDescriptor:
    return DatasetDescriptor(schema=pa.schema([("id", LONG), *fields.items()]))


def ids_after(*steps: DatasetDescriptor) -> dict[str, int]:
    lineage = Lineage()
    for old, new in pairwise(steps):
        lineage = lineage.after(old, new)
        lineage = Lineage.from_document(lineage.to_document(new.schema), new)
    ids = lineage.field_ids(steps[-1])
    assert ids is not None
    return dict(ids.by_path)


def test_the_first_schema_is_numbered_as_iceberg_numbers_a_new_table() -> None:
    descriptor = DatasetDescriptor(schema=EVERY_TYPE, partition_by="day, hash(long, 4)")
    levels = [
        Field(name=name, type=kind)
        for name, kind in descriptor.partition_types.items()
        if name not in descriptor.schema
    ]
    wanted = schema_of((*descriptor.schema, *levels), Lineage(), None, shown=0, used=0)

    assert FieldIds.first(descriptor).by_path == paths_of(assign_fresh_schema_ids(wanted))


def test_columns_keep_their_ids_while_others_come_and_go() -> None:
    first, more, other = described(a=LONG), described(a=LONG, b=LONG), described(b=LONG, a=LONG)

    assert ids_after(first) == {"id": 1, "a": 2, "batch_id": 3}
    assert ids_after(first, more, other) == {"id": 1, "a": 2, "batch_id": 3, "b": 4}


def test_a_column_that_is_dropped_and_added_again_gets_an_id_that_no_column_ever_had() -> None:
    first, without, other = described(a=LONG), described(), described(b=LONG)

    assert ids_after(first, without, first)["a"] == 4
    assert ids_after(first, without, other, without, first)["a"] == 5


def test_parts_of_columns_have_ids_of_their_own() -> None:
    one, two = pa.struct([("x", INT)]), pa.struct([("x", INT), ("y", INT)])
    old = described(s=pa.list_(one), m=pa.map_(TEXT, INT))
    new = described(s=pa.list_(two), m=pa.map_(TEXT, LONG))

    before, after = ids_after(old), ids_after(old, new)

    tops, parts = {"id": 1, "s": 2, "m": 3, "batch_id": 4}, {"s[]": 5, "s[].x": 6}
    assert before == tops | parts | {"m{key}": 7, "m{}": 8}
    assert after == {**before, "s[].y": 9}


@pytest.mark.parametrize(
    ("old", "new", "is_kept"),
    [
        (INT, LONG, True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(9, 2), pa.decimal128(18, 2), True),
        (INT, pa.float64(), False),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.decimal128(9, 2), pa.decimal128(18, 3), False),
    ],
)
def test_a_column_keeps_its_id_if_iceberg_widens_its_type(old, new, is_kept) -> None:
    assert (ids_after(described(a=old), described(a=new))["a"] == 2) is is_kept


def test_a_dataset_whose_schema_an_earlier_release_has_changed_has_no_ids() -> None:
    old, new = described(), described(a=LONG)
    document = Lineage().after(old, new).to_document(new.schema)
    del document["ids"]

    lineage = Lineage.from_document(document, new)

    assert lineage.field_ids(new) is None
    again = lineage.after(new, old)
    assert again.field_ids(old) is None
    assert "ids" not in again.to_document(old.schema)


@pytest.mark.parametrize("name", ["avro", "submissions"])
def test_files_of_other_formats_have_no_ids(name) -> None:
    texts = pa.schema([("uuid", TEXT), ("document", TEXT)])

    assert Lineage().field_ids(DatasetDescriptor(schema=texts, format=name)) is None


TYPES = st.sampled_from([INT, LONG, TEXT, pa.list_(INT), pa.list_(LONG), pa.struct([("x", INT)])])
DESCRIPTORS = st.dictionaries(st.sampled_from("abc"), TYPES).map(lambda given: described(**given))


@given(st.lists(DESCRIPTORS, min_size=2, max_size=6))
def test_no_two_columns_ever_share_an_id(descriptors: list[DatasetDescriptor]) -> None:
    lineage, schemas = Lineage(), {1: descriptors[0].schema}
    now, owners = descriptors[0], dict[int, str]()
    for wanted in descriptors:
        try:
            check_update(now, wanted, schemas)
        except LakebedError:
            continue
        before = lineage.field_ids(now)
        lineage, now = lineage.after(now, wanted), wanted
        schemas[lineage.number] = now.schema
        ids = lineage.field_ids(now)
        assert before is not None
        assert ids is not None
        for path, number in ids.by_path.items():
            assert owners.setdefault(number, path) == path
            assert path not in before.by_path or before.by_path[path] <= number
        held = with_field_ids(schema_to_arrow(now.schema), ids.by_path)
        assert field_ids_in(held) == {p: n for p, n in ids.by_path.items() if p != "batch_id"}


NESTED = {
    "r": pa.struct([("x", LONG), ("y", TEXT)]),
    "l": pa.list_(pa.struct([("x", LONG)])),
    "m": pa.map_(TEXT, LONG),
}


def test_a_renamed_field_and_its_parts_keep_their_ids() -> None:
    first = described(**NESTED)
    renamed = first
    for old, new in (("r", "t"), ("l", "r"), ("t", "l"), ("m", "counts")):
        renamed = renamed.rename_field(old, new)
    before, after = ids_after(first), ids_after(first, renamed)

    assert {path: after[path] for path in ("l", "l.x", "l.y", "r", "r[]", "r[].x")} == {
        "l": before["r"],
        "l.x": before["r.x"],
        "l.y": before["r.y"],
        "r": before["l"],
        "r[]": before["l[]"],
        "r[].x": before["l[].x"],
    }
    assert [after[f"counts{part}"] for part in ("", "{key}", "{}")] == [
        before[f"m{part}"] for part in ("", "{key}", "{}")
    ]
    assert sorted(after.values()) == sorted(before.values())
    # The second rename finds stored ids, and the first one those that are derived.
    assert ids_after(first, renamed, renamed.rename_field("l", "last"))["last.y"] == before["r.y"]


def test_a_name_that_was_renamed_away_gets_a_new_id() -> None:
    first = described(a=LONG, b=LONG)
    renamed = first.rename_field("a", "c")
    wanted = DatasetDescriptor(
        schema=pa.schema([("id", LONG), ("c", LONG), ("b", LONG), ("a", LONG)])
    )
    again = with_stored_names(wanted, renamed)

    assert ids_after(first, renamed, again) == {"id": 1, "c": 2, "b": 3, "batch_id": 4, "a": 5}


def test_a_field_that_takes_the_name_of_a_removed_one_keeps_its_own_id() -> None:
    first = described(a=pa.struct([("x", LONG)]), b=pa.struct([("y", LONG)]))
    fields = [replace(first.schema.get("b"), name="a", stored_as="b"), first.schema.get("id")]
    taken = with_stored_names(replace(first, schema=Schema(fields=tuple(fields))), first)
    before = ids_after(first)

    assert ids_after(first, taken) == {
        "id": before["id"],
        "a": before["b"],
        "a.y": before["b.y"],
        "batch_id": before["batch_id"],
    }


def levelled(*sources: str) -> DatasetDescriptor:
    """Return a descriptor with a dimension of each of these fields."""
    schema = pa.schema([("a", LONG), ("b", LONG), ("t", pa.list_(INT))])
    return DatasetDescriptor(
        schema=schema, partition_by=[by.dimension(source, "*") for source in sources]
    )


def ids_with_levels(*steps: str) -> list[dict[str, int]]:
    lineage, descriptors = Lineage(), [levelled(*step) for step in steps]
    ids = [FieldIds.first(descriptors[0]).by_path]
    for old, new in pairwise(descriptors):
        lineage = lineage.with_levels(old, new)
        lineage = Lineage.from_document(lineage.to_document(new.schema), new)
        found = lineage.field_ids(new)
        assert found is not None
        ids.append(found.by_path)
    return [dict(one) for one in ids]


FIELDS = {"a": 1, "b": 2, "t": 3}


def test_levels_keep_their_ids_in_another_order() -> None:
    wanted = FIELDS | {"a_dimension": 4, "b_dimension": 5, "batch_id": 6, "t[]": 7}

    assert ids_with_levels("ab", "ba", "ab") == [wanted, wanted, wanted]


def test_a_new_level_gets_an_id_that_no_column_ever_had() -> None:
    first, more, other = ids_with_levels("a", "ba", "b")

    assert first == FIELDS | {"a_dimension": 4, "batch_id": 5, "t[]": 6}
    assert more == first | {"b_dimension": 7}
    assert other == {path: number for path, number in more.items() if path != "a_dimension"}
    assert ids_with_levels("ab", "a", "")[-1] == FIELDS | {"batch_id": 6, "t[]": 7}


def test_a_level_that_comes_back_has_its_former_id() -> None:
    first, without, again, last = ids_with_levels("ab", "b", "ab", "ba")

    assert "a_dimension" not in without
    assert again == last == first


def test_a_field_of_the_name_of_a_former_level_gets_an_id_of_its_own() -> None:
    first, without = levelled("a"), levelled()
    fields = (*without.schema, Field(name="a_dimension", type=Primitive(Kind.STRING)))
    named = replace(without, schema=Schema(fields=fields))
    ids = Lineage().with_levels(first, without).after(without, named).field_ids(named)
    assert ids is not None
    assert (ids.by_path["a_dimension"], ids.last) == (7, 7)

    dropped = ids.after(named, without)
    read = FieldIds.from_document(dropped.to_document(), without)
    assert read == dropped
    assert read.with_levels(first).by_path["a_dimension"] == 4


@pytest.mark.parametrize("former", [{"x": 1}, {"x": 8}, {"x": 5, "y": 5}, {"x": "4"}])
def test_ids_of_former_levels_that_cannot_be_are_refused(former: dict[str, object]) -> None:
    descriptor = levelled("a")
    document = FieldIds.first(descriptor).to_document() | {"last": 7, "former_levels": former}

    with pytest.raises((ValueError, TypeError)):
        FieldIds.from_document(document, descriptor)

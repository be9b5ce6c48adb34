"""Data files hold the ids of their columns, and partitions too where pyiceberg needs them there."""

import dataclasses
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from table_doors import DELTA, EVERY_TYPE, EVERY_VALUE, ICEBERG, assert_shows, rows_of

import lakebed
from lakebed import by
from lakebed.errors import InvalidInputError
from lakebed.model.allowed import read_allowed
from lakebed.model.arrow_types import field_ids_in
from lakebed.model.dimensions import DimensionRule
from lakebed.model.field_ids import FieldIds
from lakebed.model.lineage import Lineage
from lakebed.store.posix import PosixStore
from lakebed.tables.iceberg.iceberg_schema import paths_of

FIRST, SECOND = dt.datetime(2013, 1, 1, tzinfo=dt.UTC), dt.datetime(2013, 1, 2, tzinfo=dt.UTC)
SCHEMA = pa.schema([("p", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
ROWS = [
    {"p": "a", "at": FIRST, "n": 1},
    {"p": "a", "at": SECOND, "n": 2},
    {"p": "b", "at": SECOND, "n": 3},
    {"p": None, "at": None, "n": 4},
]
PUBLISHED = {"publish.iceberg": "true"}


@pytest.fixture
def lake(tmp_path):
    return lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))


def create(lake, properties=(), **more):
    given = {"schema": SCHEMA, "partition_by": "p, date(at) as dt, hash(n, 2) as part", **more}
    return lake.create("d", lakebed.DatasetDescriptor(properties=dict(properties), **given))


def update(dataset, *, add=None, drop=()):
    def edit(old):
        kept = [field for field in old.schema if field.name not in drop]
        added = (
            lakebed.DatasetDescriptor(schema=pa.schema(list((add or {}).items()))) if add else ()
        )
        fields = (*kept, *(added.schema if added else ()))
        schema = dataclasses.replace(old.schema, fields=fields)
        return lakebed.DatasetDescriptor(
            schema=schema, partition_by=old.partition_by, properties=old.properties
        )

    dataset.evolve(edit)


def folder(dataset) -> Path:
    return Path(dataset.uri.removeprefix("file://"))


def table(dataset) -> StaticTable:
    return StaticTable.from_metadata(str(folder(dataset) / "iceberg"))


def files(dataset) -> list[Path]:
    return sorted((folder(dataset) / "data").rglob("part-*.parquet"))


def assert_ids_are_those_of_the_table(dataset, held=files) -> None:
    wanted = paths_of(table(dataset).schema())
    for path in held(dataset):
        ids = field_ids_in(pq.read_schema(path))
        assert ids
        assert ids == {name: wanted[name] for name in ids}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("p = 'a'", [1, 2]),
        ("p != 'a'", [3]),
        ("p IS NULL", [4]),
        ("p IS NOT NULL", [1, 2, 3]),
        ("p IN ('b', 'c')", [3]),
        ("dt = '2013-01-02'", [2, 3]),
        ("dt < '2013-01-02' OR p = 'b'", [1, 3]),
        ("part >= 0", [1, 2, 3, 4]),
        ("dt > '2013-01-01' AND n > 2", [3]),
        ("batch_id > 0", [1, 2, 3, 4]),
    ],
)
def test_pyiceberg_finds_rows_by_partitions_that_are_not_selected(lake, condition, found):
    dataset = create(lake, PUBLISHED)
    dataset.append(ROWS)

    scan = table(dataset).scan(row_filter=condition, selected_fields=("n",))

    assert sorted(scan.to_arrow()["n"].to_pylist()) == found


def test_files_hold_partitions_only_where_each_commit_is_published(lake):
    plain = create(lake)
    plain.append(ROWS)
    assert {tuple(pq.read_schema(path).names) for path in files(plain)} == {("at", "n")}

    plain.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=old.schema, partition_by=old.partition_by, properties=PUBLISHED
        )
    )
    plain.append(ROWS)
    names = [tuple(pq.read_schema(path).names) for path in files(plain)]
    assert set(names) == {("at", "n"), ("at", "n", "p", "dt", "part", "batch_id")}

    before = rows_of(plain.arrow(["p", "dt", "part", "batch_id", "n"]), ["p", "dt", "part", "n"])
    assert len(before) == 2 * len(ROWS)
    assert_shows(ICEBERG, plain)


@pytest.mark.parametrize("properties", [{}, PUBLISHED], ids=["plain", "published"])
def test_all_types_are_read_back_by_their_ids(lake, properties):
    dataset = create(lake, properties, schema=EVERY_TYPE, partition_by="day")
    nothing = dict.fromkeys(EVERY_VALUE) | {"structs": []}
    dataset.append([EVERY_VALUE, nothing])
    dataset.publish("iceberg")
    dataset.publish("delta")

    assert_ids_are_those_of_the_table(dataset)
    assert_shows(ICEBERG, dataset)
    assert_shows(DELTA, dataset)
    assert not dataset.check().findings


@pytest.mark.parametrize("properties", [{}, PUBLISHED], ids=["plain", "published"])
def test_ids_stay_while_columns_come_and_go(lake, properties):
    dataset = create(lake, properties, partition_by="p")
    dataset.append(ROWS)
    dataset.publish("iceberg")
    for number, (add, drop) in enumerate(
        [({"x": pa.int64()}, ()), ({"s": pa.struct([("x", pa.int64())])}, ("x",)), (None, ("at",))]
    ):
        update(dataset, add=add, drop=drop)
        names = dataset.descriptor.schema.names
        values = {"p": "a", "n": number, "x": number, "s": {"x": number}}
        dataset.append([{name: value for name, value in values.items() if name in names}])
        dataset.publish("iceberg")
        assert_shows(ICEBERG, dataset)
    dataset.delete(dataset.where("n < 2"))
    update(dataset, add={"x": pa.int64()})
    dataset.overwrite([{"p": "a", "n": 7, "s": {"x": 7}, "x": 9}])
    dataset.overwrite(dataset.arrow())
    dataset.publish("iceberg")

    assert_shows(ICEBERG, dataset)
    ids = paths_of(table(dataset).schema())
    assert ids == {"p": 1, "n": 3, "batch_id": 4, "s": 6, "s.x": 7, "x": 8}
    live = [folder(dataset) / file.key.partition("/")[2] for file in dataset.plan().files]
    assert live
    assert_ids_are_those_of_the_table(dataset, lambda _: live)


def test_old_snapshots_of_the_table_show_what_they_showed(lake):
    dataset = create(lake, PUBLISHED, partition_by="p")
    dataset.append([{"p": "a", "n": 1}])
    first = table(dataset).current_snapshot().snapshot_id
    update(dataset, drop=("n",))
    dataset.append([{"p": "b"}])

    assert table(dataset).scan(snapshot_id=first).to_arrow()["n"].to_pylist() == [1]


def test_rewritten_files_hold_their_own_partitions(lake):
    dataset = create(lake, PUBLISHED)
    for _ in range(2):
        dataset.append(ROWS)
    dataset.compact(gather=True)
    dataset.merge([{"p": "a", "at": FIRST, "n": 1}], ["n"])

    for condition in ("p = 'a'", "dt = '2013-01-02'", "p IS NULL"):
        scan = table(dataset).scan(row_filter=condition, selected_fields=("n", "batch_id"))
        wanted = dataset.where(condition).arrow(["n", "batch_id"])
        assert rows_of(scan.to_arrow(), ["n", "batch_id"]) == rows_of(wanted, ["n", "batch_id"])


def test_a_table_first_published_after_columns_were_dropped_has_the_ids_of_the_files(
    lake, tmp_path
):
    dataset = create(lake, partition_by="p")
    update(dataset, add={"s": pa.list_(pa.int64())}, drop=("at",))
    dataset.append([{"p": "a", "n": 1, "s": [1]}])
    (tmp_path / "warehouse").mkdir()
    with load_catalog(
        "doors",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/warehouse",
    ) as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lakebed.tables.iceberg.homes.load_catalog", lambda _: catalog)
            for number in range(2):
                dataset.publish("iceberg", catalog="doors", table="web.d")
                dataset.append([{"p": "b", "n": number, "s": []}])
            dataset.publish("iceberg", catalog="doors", table="web.d")
        found = catalog.load_table("web.d")

        assert paths_of(found.schema()) == {"p": 1, "n": 3, "batch_id": 4, "s": 5, "s[]": 6}
        assert [part.source_id for part in found.spec().fields] == [1, 4]
        names = ["p", "n", "s"]
        assert rows_of(found.scan().to_arrow(), names) == rows_of(dataset.arrow(), names)
        assert found.scan(row_filter="p = 'a'").to_arrow().num_rows == 1


def old_release(patch):
    """Write files without ids, as before."""
    patch.setattr(Lineage, "field_ids", lambda _lineage, _descriptor: None)
    patch.setattr("lakebed.model.publishing.levels_in_files", lambda _descriptor: ())


def test_a_table_of_an_earlier_release_goes_on(lake, monkeypatch):
    dataset = create(lake, PUBLISHED, schema=EVERY_TYPE, partition_by="day")
    nothing = dict.fromkeys(EVERY_VALUE) | {"structs": []}
    with monkeypatch.context() as patch:
        old_release(patch)
        dataset.append([EVERY_VALUE, nothing])
        assert "PARQUET:field_id" not in str(pq.read_schema(files(dataset)[0]))
    dataset.append([EVERY_VALUE, nothing])
    update(dataset, add={"more": pa.int32()})
    dataset.append([{**EVERY_VALUE, "more": 1}])

    assert_shows(ICEBERG, dataset)
    assert dataset.publish("iceberg", check=True).was_in_step


def test_a_schema_that_an_earlier_release_has_changed_stays_without_ids(lake, monkeypatch):
    with monkeypatch.context() as patch:
        old_release(patch)
        dataset = create(lake, PUBLISHED, partition_by="p")
        update(dataset, add={"x": pa.int64()})
    for number in range(2):
        dataset.append([{"p": "a", "n": number, "x": number}])
        update(dataset, add={f"y{number}": pa.int64()}, drop=("x",) if number else ())

    assert_shows(ICEBERG, dataset)
    ids = {
        number for path in files(dataset) for number in field_ids_in(pq.read_schema(path)).values()
    }
    assert ids == {None}


def test_a_table_of_an_earlier_release_with_other_ids_is_refused(lake, monkeypatch):
    dataset = create(lake, partition_by="p")
    with monkeypatch.context() as patch:
        old_release(patch)
        dataset.append(ROWS)
        dataset.publish("iceberg")
    other = FieldIds(by_path={"p": 1, "at": 3, "n": 2, "batch_id": 4}, last=4)
    monkeypatch.setattr(Lineage, "field_ids", lambda _lineage, _descriptor: other)
    dataset.append([{"p": "a", "n": 5}])

    with pytest.raises(InvalidInputError, match="other ids than new data files have") as info:
        dataset.publish("iceberg")
    assert "Unpublish it" in info.value.hint
    dataset.unpublish("iceberg")
    dataset.publish("iceberg")
    assert_shows(ICEBERG, dataset)


def test_an_adopted_iceberg_table_keeps_its_ids(lake, tmp_path):
    (tmp_path / "lake").mkdir(exist_ok=True)
    with load_catalog(
        "doors",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/lake",
    ) as catalog:
        catalog.create_namespace("web")
        fields = pa.schema([("gone", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
        old = catalog.create_table("web.d", fields, location=f"file://{tmp_path}/lake/d")
        with old.update_schema() as schema:
            schema.delete_column("gone")
        old.append(pa.table({"n": [1, 2], "text": ["x", None]}))

    dataset = lake.adopt("d", iceberg=True)
    dataset.append([{"n": 3, "text": "y"}])
    dataset.publish("iceberg")

    assert paths_of(table(dataset).schema()) == {"n": 2, "text": 3, "batch_id": 4}
    assert_shows(ICEBERG, dataset)
    update(dataset, add={"more": pa.int64()})
    dataset.append([{"n": 4, "more": 5}])
    dataset.publish("iceberg")
    assert_shows(ICEBERG, dataset)
    assert_ids_are_those_of_the_table(dataset)
    rename(dataset, [("more", "other"), ("n", "more"), ("other", "n")])
    dataset.append([{"more": 5, "n": 6}])
    dataset.publish("iceberg")
    assert_shows(ICEBERG, dataset)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({"n": 2, "m": 1}, "column 'n' has the field id 2 in it, and 1 in the table"),
        ({"n": 1, "m": None}, "column 'm' has the field id None in it, and 2 in the table"),
        ({"n": 1, "m": 2}, ""),
        ({"n": None, "m": None}, ""),
    ],
)
def test_adopted_files_whose_ids_mean_other_columns_are_refused(lake, tmp_path, ids, reason):
    home = tmp_path / "lake" / "d"
    home.mkdir(parents=True)
    fields = [
        pa.field(name, pa.int64(), metadata=None if i is None else {"PARQUET:field_id": str(i)})
        for name, i in ids.items()
    ]
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), home / "000000_0.parquet")
    dataset = lake.adopt("d")

    if reason:
        with pytest.raises(InvalidInputError, match=reason):
            dataset.publish("iceberg")
        dataset.compact(gather=True)
    dataset.publish("iceberg")

    assert_shows(ICEBERG, dataset)


class TestHiddenBatchId:
    def test_the_table_lacks_it_and_goes_on(self, lake):
        dataset = create(lake, {**PUBLISHED, "publish.iceberg.hide_batch_id": "true"})
        dataset.append(ROWS)
        dataset.overwrite(ROWS[:1])

        found = table(dataset)
        assert found.schema().column_names == ["p", "at", "n", "dt", "part"]
        assert [part.name for part in found.spec().fields] == ["p", "dt", "part"]
        assert {"batch_id"}.isdisjoint(pq.read_schema(files(dataset)[0]).names)
        assert rows_of(found.scan().to_arrow(), SCHEMA.names) == rows_of(
            dataset.arrow(), SCHEMA.names
        )
        assert dataset.publish("iceberg", check=True).was_in_step

    def test_a_dataset_without_partitions_becomes_a_table_without(self, lake):
        dataset = create(lake, partition_by=())
        dataset.append(ROWS)
        dataset.publish("iceberg", hide_batch_id=True)
        dataset.append(ROWS)
        dataset.publish("iceberg")
        dataset.delete(dataset.where("n < 3"))
        dataset.publish("iceberg")

        assert table(dataset).spec().is_unpartitioned()
        assert sorted(table(dataset).scan().to_arrow()["n"].to_pylist()) == [3, 3, 4, 4]

    @pytest.mark.parametrize("is_hidden", [True, False])
    def test_it_cannot_be_changed_in_place(self, lake, is_hidden):
        dataset = create(lake)
        dataset.append(ROWS)
        dataset.publish("iceberg", hide_batch_id=is_hidden)

        with pytest.raises(InvalidInputError, match="cannot be changed in place") as info:
            dataset.publish("iceberg", hide_batch_id=not is_hidden)
        assert "Unpublish it" in info.value.hint
        dataset.unpublish("iceberg")
        dataset.publish("iceberg", hide_batch_id=not is_hidden)
        assert ("batch_id" in table(dataset).schema().column_names) is is_hidden

    def test_another_value_is_refused(self, lake):
        with pytest.raises(InvalidInputError, match="hide_batch_id' is 'yes'"):
            create(lake, {**PUBLISHED, "publish.iceberg.hide_batch_id": "yes"})


RENAMED = [("t", "u"), ("n", "t"), ("u", "n"), ("r", "place")]
PLAIN = pa.schema(
    [
        ("p", pa.string()),
        ("n", pa.int64()),
        ("t", pa.int64()),
        ("r", pa.struct([("n", pa.int64()), ("l", pa.list_(pa.int64()))])),
    ]
)


def rename(dataset, pairs=RENAMED):
    def edit(old):
        for name, new in pairs:
            old = old.rename_field(name, new)
        return old

    dataset.evolve(edit)


@pytest.mark.parametrize("properties", [{}, PUBLISHED], ids=["plain", "published"])
@pytest.mark.parametrize("is_published_before", [True, False])
def test_renamed_fields_keep_their_ids_in_files_before_and_after(
    lake, properties, *, is_published_before
):
    dataset = create(lake, properties, schema=PLAIN, partition_by="p")
    dataset.append([{"p": "a", "n": 1, "t": 10, "r": {"n": 100, "l": [1]}}])
    if is_published_before:
        dataset.publish("iceberg")
    first = {path: field_ids_in(pq.read_schema(path)) for path in files(dataset)}
    rename(dataset)
    dataset.append([{"p": "a", "t": 2, "n": 20, "place": {"n": 200, "l": [2]}}])
    update(dataset, add={"r": pa.int64()})
    dataset.append([{"p": "b", "t": 3, "n": 30, "place": None, "r": 7}])
    dataset.publish("iceberg")

    # A column has one name and one id in all files, and the table has the new name for this id.
    shown = paths_of(table(dataset).schema())
    (known,) = first.values()
    assert (shown["t"], shown["n"], shown["place"]) == (known["n"], known["t"], known["r"])
    assert shown["place.l[]"] == known["r.l[]"]
    assert shown["r"] > max(known.values())
    for path in files(dataset):
        ids = field_ids_in(pq.read_schema(path))
        assert {name: ids[name] for name in known if name in ids} == known
        assert ids.get("r_2", shown["r"]) == shown["r"]
    assert sum("r_2" in pq.read_schema(path).names for path in files(dataset)) == 1

    rows = {
        (row["t"], row["n"], row["place"] and row["place"]["n"], row["r"])
        for row in table(dataset).scan().to_arrow().to_pylist()
    }
    assert rows == {(1, 10, 100, None), (2, 20, 200, None), (3, 30, None, 7)}
    for condition, found in (
        ("t = 2", [20]),
        ("n = 10", [10]),
        ("place.n > 100", [20]),
        ("r = 7", [30]),
    ):
        scan = table(dataset).scan(row_filter=condition, selected_fields=("n",))
        assert scan.to_arrow()["n"].to_pylist() == found
    assert_shows(ICEBERG, dataset)
    assert not dataset.check().findings


def test_rewritten_files_of_renamed_fields_have_the_same_ids(lake):
    dataset = create(lake, PUBLISHED, schema=PLAIN, partition_by="p")
    for number in range(3):
        dataset.append([{"p": "a", "n": number, "t": 10 * number, "r": None}])
    rename(dataset)
    first = field_ids_in(pq.read_schema(files(dataset)[0]))
    dataset.where("t = 1").delete()
    dataset.where("t = 2").update_rows({"n": 5})
    dataset.compact(gather=True)

    assert len(files(dataset)) > 3
    assert all(field_ids_in(pq.read_schema(path)) == first for path in files(dataset))
    rows = table(dataset).scan().to_arrow().to_pylist()
    assert sorted((row["t"], row["n"]) for row in rows) == [(0, 0), (2, 5)]
    assert_shows(ICEBERG, dataset)


def test_a_table_of_an_earlier_release_goes_on_after_a_rename(lake, monkeypatch):
    with monkeypatch.context() as patch:
        old_release(patch)
        dataset = create(lake, schema=PLAIN, partition_by="p")
        dataset.append([{"p": "a", "n": 1, "t": 10, "r": None}])
        dataset.publish("iceberg")
    rename(dataset)
    dataset.append([{"p": "a", "t": 2, "n": 20, "place": {"n": 200, "l": [2]}}])
    dataset.publish("iceberg")

    assert_shows(ICEBERG, dataset)


def rules(*sources):
    """Return a schema with these dimensions, in this order."""
    allowed = {"p": ["a"], "n": "*"}
    rules = [
        DimensionRule(field_name=name, allowed=read_allowed(allowed[name], name))
        for name in sources
    ]
    return lakebed.DimensionSchema(dimensions=tuple(rules))


def assert_finds_rows_by_levels(dataset) -> None:
    dataset.unpublish("iceberg")
    dataset.publish("iceberg")
    assert_ids_are_those_of_the_table(
        dataset, lambda known: [folder(known).parent / file.key for file in known.files()]
    )
    levels = [one.name for one in dataset.descriptor.partition_by]
    for level in levels:
        for value in dataset.arrow([level])[level].unique().to_pylist():
            scan = table(dataset).scan(row_filter=f"{level} = '{value}'", selected_fields=("n",))
            assert scan.to_arrow().num_rows == dataset.where(f"{level} = '{value}'").count()
    columns = ["n", *levels]
    assert rows_of(table(dataset).scan().to_arrow(), columns) == rows_of(
        dataset.arrow(columns), columns
    )


STEPS = [("pn", "np"), ("p", "pn"), ("p", "np"), ("pn", "n"), ("p", "n"), ("pn", "np", "n", "np")]


@pytest.mark.parametrize("head", ["document", "tree"])
@pytest.mark.parametrize("steps", STEPS, ids="-".join)
@pytest.mark.parametrize("is_changed", [False, True], ids=["first", "changed"])
def test_rerouted_files_have_the_ids_of_new_ones(lake, head, steps, is_changed):
    allowed = {"p": ["a"], "n": "*"}
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by=[by.dimension(name, allowed[name]) for name in steps[0]],
        properties=PUBLISHED,
    )
    dataset = lake.create("d", descriptor, head=head)
    dataset.append(ROWS)
    if is_changed:
        update(dataset, add={"m": pa.int64()}, drop={"at"})
    for step in steps[1:]:
        dataset.dimensions.promote(rules(*step), reroute=True)

        dataset.append([{"p": "a", "n": 5}])
        assert_finds_rows_by_levels(dataset)


@pytest.mark.parametrize("back", ["rollback", "staged"])
def test_files_from_before_a_level_came_back_have_its_id(lake, back):
    dataset = create(
        lake, PUBLISHED, partition_by=[by.dimension("p", ["a"]), by.dimension("n", "*")]
    )
    dataset.append(ROWS)
    staged = dataset.staged.add([{"p": "a", "n": 5}])
    dataset.dimensions.promote(rules("n"), reroute=True)
    dataset.dimensions.promote(rules("p", "n"), reroute=True)

    if back == "rollback":
        dataset.rollback(version=1)
    else:
        staged.commit()

    assert_finds_rows_by_levels(dataset)

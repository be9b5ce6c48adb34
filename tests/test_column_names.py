"""Names and comments of columns: whatever is printable is stored, asked for and read back."""

import csv
import dataclasses
import json
import tempfile
import urllib.parse
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_doors import DELTA, ICEBERG

import lakebed
from lakebed import CsvOptions, by
from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.names import check_partition_name, find_alike
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import sql_name
from lakebed.model.schema import Field, Kind, Primitive
from lakebed.store.posix import PosixStore
from lakebed.work.ingest.load_options import LoadOptions

SIGNS = " -/\\=%[]{}()',;:\"@#$&*+!?<>|~^_§€"
ODD = [
    "my col",
    "größe",
    "中",
    "50%",
    "%2e%2e",
    "a/b",
    "a=b",
    "x,y",
    "q'u\"o",
    "@where",
    "price [EUR]",
    "b\\s",
    "select",
    "id; DROP TABLE t --",
    "-",
    "NULL",
    "1",
]


def is_legal(name: str) -> bool:
    try:
        check_partition_name(name)
    except InvalidNameError:
        return False
    return name != "batch_id"


letters = st.characters(categories=["L", "N", "M", "S"], include_characters=SIGNS)
names = st.one_of(st.sampled_from(ODD), st.text(letters, min_size=1, max_size=8)).filter(is_legal)
several = st.lists(names, min_size=5, max_size=5, unique=True).filter(
    lambda drawn: find_alike([*drawn, f"{drawn[0]}_hash"]) is None
)


def new_repository() -> lakebed.Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4()}")


@pytest.mark.thorough
@given(several)
def test_every_verb_takes_every_name(drawn: list[str]) -> None:
    key, text, level, number, added = drawn
    repository = new_repository()
    fields = [(key, pa.int64()), (text, pa.string()), (level, pa.string()), (number, pa.float64())]
    strategy = PartitionStrategy((by.hash(key, 3), by.identity(level)))
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema(fields), partition_by=str(strategy), index=[key, text]
    )
    rows = [{key: n, text: f"t{n % 4}", level: "xy"[n % 2], number: n / 2} for n in range(12)]

    table = repository.create("t", descriptor)
    table.append(rows)

    assert table.descriptor.partition_by == strategy
    assert repository.open("t").descriptor == table.descriptor
    narrow = table.where(f"{sql_name(key)} = 5 AND {sql_name(level)} = 'y'")
    assert narrow.arrow().to_pylist() == [rows[5]]
    assert lakebed.open_uri(narrow.kite.uri).arrow().to_pylist() == [rows[5]]
    by_index = table.where([[(text, "==", "t3")]])
    assert {row[key] for row in by_index.arrow([key]).to_pylist()} == {3, 7, 11}

    table.merge(
        [{**rows[5], number: -1.0}],
        on=[key],
        update={number: f"source.{sql_name(number)} - target.{sql_name(number)}"},
        update_where=f"source.{sql_name(text)} = target.{sql_name(text)}",
    )
    rows[5] = {**rows[5], number: -3.5}
    table.delete(table.where(f"{sql_name(number)} = 1.5"))
    del rows[3]
    table.evolve(with_field(added))
    rows = [{**row, added: None} for row in rows]
    table.append([{**rows[0], key: 99, added: 7}])
    rows.append({**rows[0], key: 99, added: 7})
    table.compact(gather=True)

    assert sorted_rows(table.arrow(), key) == sorted(rows, key=lambda row: row[key])
    assert table.where(f"{sql_name(added)} = 7").count() == 1
    assert not table.check().problems
    stored = [info.key for info in repository.store.list("")]
    assert all(path.startswith(("t/", "t.")) and ".." not in path.split("/") for path in stored)
    quoted = f"%{urllib.parse.quote(level, safe='')}="
    assert quoted.lstrip("%") in table.inspect.partitions()[0].path


def with_field(name: str):
    def change(old: lakebed.DatasetDescriptor) -> lakebed.DatasetDescriptor:
        field = Field(name=name, type=Primitive(Kind.LONG))
        schema = dataclasses.replace(old.schema, fields=(*old.schema.fields, field))
        return dataclasses.replace(old, schema=schema)

    return change


def sorted_rows(table: pa.Table, key: str) -> list[dict]:
    return sorted(table.to_pylist(), key=lambda row: row[key])


@pytest.mark.thorough
@given(several)
def test_every_name_is_a_column_to_duckdb(drawn: list[str]) -> None:
    pytest.importorskip("duckdb")
    repository = new_repository()
    schema = pa.schema([(name, pa.int64()) for name in drawn])
    table = repository.create("t", lakebed.DatasetDescriptor(schema=schema))
    table.append([{name: 10 * n + place for place, name in enumerate(drawn)} for n in range(3)])

    for place, name in enumerate(drawn):
        quoted = '"' + name.replace('"', '""') + '"'
        answer = repository.sql(f"SELECT {quoted} FROM t WHERE {quoted} = {10 + place}")
        assert answer.to_pylist() == [{name: 10 + place}]


@given(st.lists(names.filter(lambda name: "\\" not in name), min_size=3, max_size=3, unique=True))
def test_names_of_a_csv_header_are_the_names_of_columns(drawn: list[str]) -> None:
    if find_alike(drawn):
        return
    repository = new_repository()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:  # noqa: PTH123 - csv's way
            csv.writer(file).writerows([drawn, [1, 2, 3]])
        table = repository.create(
            "t", lakebed.DatasetDescriptor(schema=lakebed.infer_schema(path, csv=CsvOptions()))
        )
        table.load(path, options=LoadOptions(csv=CsvOptions()))

    assert table.arrow().to_pylist() == [dict(zip(drawn, [1, 2, 3], strict=True))]


def test_a_new_field_of_a_raw_file_keeps_its_odd_name(tmp_path) -> None:
    table = new_repository().create(
        "t", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    )
    lines = [{"n": 1, "größe in m": 2, "a.b": 3, "rec": {"in ner": 4}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))

    table.load(str(tmp_path / "a.jsonl"), options=LoadOptions(unknown="keep"))

    assert "größe in m" in table.schema.names
    assert "a.b" not in table.schema.names


@pytest.mark.parametrize("door", [DELTA, ICEBERG], ids=str)
def test_published_table_has_the_names_and_comments(door, tmp_path) -> None:
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    schema = pa.schema(
        [
            pa.field("größe", pa.int64(), metadata={"comment": 'in "m" · it\'s'}),
            pa.field("中-文", pa.string()),
            pa.field("a/b", pa.struct([pa.field("é%", pa.int64(), metadata={"comment": "in"})])),
        ]
    )
    table = lake.create(
        "t",
        lakebed.DatasetDescriptor(
            schema=schema,
            partition_by=f"hash(größe, 2) as {'part' if door is DELTA else 'größe_hash'}",
        ),
    )
    rows = [{"größe": n, "中-文": str(n), "a/b": {"é%": n}} for n in range(4)]
    table.append(rows)

    door.publish(table)

    for name, read in door.read(table).items():
        got = read.select(schema.names).to_pylist()
        assert sorted(got, key=lambda row: row["größe"]) == rows, name


def test_name_that_delta_needs_mapping_for_is_refused_and_nothing_is_published(tmp_path) -> None:
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    inner = pa.list_(pa.struct([("my col", pa.int64())]))
    table = lake.create("t", lakebed.DatasetDescriptor(schema=pa.schema([("list", inner)])))
    table.append([{"list": [{"my col": 1}]}])

    with pytest.raises(InvalidInputError, match=r"list\[\].my col.*column mapping"):
        DELTA.publish(table)

    assert not (tmp_path / "lake/t/data/_delta_log").exists()
    ICEBERG.publish(table)
    for read in ICEBERG.read(table).values():
        assert read.select(["list"]).to_pylist() == [{"list": [{"my col": 1}]}]


def test_partition_field_that_delta_readers_would_not_decode_is_refused(tmp_path) -> None:
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([("größe", pa.int64())]), partition_by="hash(größe, 2)"
    )

    with pytest.raises(InvalidInputError, match="percent-encoded"):
        DELTA.publish(lake.create("t", descriptor))


@pytest.mark.parametrize("name", ["x,y", "a:b", "a;b", "${env:HOME}"])
def test_name_that_a_metastore_does_not_take_is_refused(name: str, tmp_path) -> None:
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    table = lake.create("t", lakebed.DatasetDescriptor(schema=pa.schema([(name, pa.int64())])))

    with pytest.raises(InvalidInputError, match="metastore does not take the name"):
        table.publish("hive", table="db.t", print_sql=True)


@pytest.mark.parametrize("level", ["größe", "my col"])
def test_partition_field_that_a_metastore_cannot_filter_is_refused(level: str, tmp_path) -> None:
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([(level, pa.int64()), ("n", pa.int64())]), partition_by=f"`{level}`"
    )

    with pytest.raises(InvalidInputError, match="metastore does not take the name"):
        lake.create("t", descriptor).publish("hive", table="db.t", print_sql=True)


@pytest.mark.parametrize("name", ["my col", "größe", "1st", "a-b"])
def test_files_of_avro_refuse_a_name_that_is_none_of_avro(name: str) -> None:
    schema = pa.schema([("l", pa.list_(pa.struct([(name, pa.int64())])))])

    with pytest.raises(InvalidNameError, match="Avro"):
        lakebed.DatasetDescriptor(schema=schema, format="avro")


def test_submissions_are_read_by_the_names_of_their_documents() -> None:
    schema = pa.schema(
        [
            pa.field("uuid", pa.string(), nullable=False),
            pa.field("document", pa.string(), nullable=False),
            ("größe in m", pa.int64()),
            ("a/b", pa.string()),
        ]
    )
    descriptor = lakebed.DatasetDescriptor(
        schema=schema, format="submissions", partition_by="hash(`größe in m`, 2), `a/b` as `%2e`"
    )
    table = new_repository().create("t", descriptor)

    table.append([{"uuid": "u", "document": '{"größe in m": 3, "a/b": ".."}'}])

    assert table.where("`größe in m` = 3 AND `%2e` = '..'").arrow(["a/b"]).to_pylist() == [
        {"a/b": ".."}
    ]


def test_index_of_a_name_too_long_for_a_directory_is_refused() -> None:
    name = "中" * 29
    schema = pa.schema([(name, pa.int64())])

    lakebed.DatasetDescriptor(schema=schema)
    with pytest.raises(InvalidNameError, match="261 bytes"):
        lakebed.DatasetDescriptor(schema=schema, index=name)


def test_names_that_only_look_the_same_are_told_apart_or_refused() -> None:
    pytest.importorskip("duckdb")
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    repository = new_repository()
    schema = pa.schema([(composed, pa.int64()), (decomposed, pa.int64())])
    table = repository.create("t", lakebed.DatasetDescriptor(schema=schema))
    table.append([{composed: 1, decomposed: 2}])

    assert table.where(f"`{decomposed}` = 2 AND {composed} = 1").count() == 1
    with pytest.raises(SchemaMismatchError, match="DuckDB cannot distinguish"):
        repository.sql("SELECT * FROM t")


def test_name_cannot_leave_its_place_in_a_condition() -> None:
    name = "1 = 1 OR x"
    schema = pa.schema([(name, pa.int64()), ("x", pa.int64())])
    table = new_repository().create("t", lakebed.DatasetDescriptor(schema=schema))
    table.append([{name: 1, "x": 5}, {name: 2, "x": 6}])

    view = table.where([[(name, "==", 2)]])

    assert table.where(str(view.plan().predicate)).arrow().to_pylist() == [{name: 2, "x": 6}]


# --- comments ---


def commented_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("n", pa.int64(), metadata={"comment": "how many"}),
            pa.field("r", pa.struct([pa.field("x", pa.int64(), metadata={"comment": "inner"})])),
            pa.field("s", pa.string()),
        ]
    )


def comments_of(schema: pa.Schema) -> dict[str, str]:
    found = {field.name: (field.metadata or {}).get(b"comment", b"") for field in schema}
    return {name: text.decode() for name, text in found.items() if text}


def test_comments_of_arrow_come_back_and_are_copied() -> None:
    repository = new_repository()
    table = repository.create("t", lakebed.DatasetDescriptor(schema=commented_schema()))
    table.append([{"n": 1, "r": {"x": 2}, "s": "a"}])

    assert repository.open("t").schema.get("n").doc == "how many"
    assert repository.open("t").schema.get("r").type.fields[0].doc == "inner"
    assert comments_of(table.arrow().schema) == {"n": "how many"}
    assert comments_of(table.arrow(["s", "n", "batch_id"]).schema) == {"n": "how many"}
    assert comments_of(pa.schema(table)) == {"n": "how many"}
    again = repository.create("again", lakebed.DatasetDescriptor(schema=table.arrow()))
    assert again.schema.get("n").doc == "how many"
    again.append(table.arrow())


def test_rows_without_comments_or_with_others_fit() -> None:
    table = new_repository().create("t", lakebed.DatasetDescriptor(schema=commented_schema()))
    other = [field.with_metadata({"comment": "something else"}) for field in commented_schema()]
    bare = pa.schema([("n", pa.int64()), ("r", pa.struct([("x", pa.int64())])), ("s", pa.string())])

    for schema in (pa.schema(other), bare):
        table.append(pa.Table.from_pylist([{"n": 1, "r": {"x": 2}, "s": "a"}], schema=schema))

    assert table.schema.get("n").doc == "how many"
    assert table.count() == 2


def test_change_of_a_comment_rewrites_no_file() -> None:
    repository = new_repository()
    table = repository.create("t", lakebed.DatasetDescriptor(schema=commented_schema()))
    table.append([{"n": 1, "r": {"x": 2}, "s": "a"}])
    files = [file.key for file in table.files()]
    inner = pa.struct([pa.field("x", pa.int64(), metadata={"comment": "deeper"})])
    schema = pa.schema(
        [pa.field("n", pa.int64(), metadata={"comment": "count"}), ("r", inner), ("s", pa.string())]
    )

    table.evolve(lakebed.DatasetDescriptor(schema=schema), base=table.version)

    assert [file.key for file in table.files()] == files
    assert table.schema.get("n").doc == "count"
    assert table.schema.get("r").type.fields[0].doc == "deeper"
    assert table.at(version=1).schema.get("n").doc == "how many"
    assert table.where("n = 1 AND r.x = 2").arrow().to_pylist() == [
        {"n": 1, "r": {"x": 2}, "s": "a"}
    ]
    from lakebed.model.evolution import changes

    one, two = (known.schema for known in table.inspect.schemas())
    assert changes(one, two) == ("n: doc", "r: fields inside")


def test_comments_are_no_part_of_data_files() -> None:
    repository = new_repository()
    for name, schema in (
        ("with", commented_schema()),
        ("without", pa.schema([f.with_metadata(None) for f in commented_schema()])),
    ):
        repository.create(name, lakebed.DatasetDescriptor(schema=schema)).append(
            [{"n": 1, "r": None, "s": "a"}]
        )

    data = [
        repository.store.get(repository.open(name).files()[0].key).data
        for name in ("with", "without")
    ]
    assert pq.read_schema(pa.BufferReader(data[0])).equals(
        pq.read_schema(pa.BufferReader(data[1])), check_metadata=True
    )


def test_comment_is_in_the_html_of_a_schema_and_escaped() -> None:
    schema = pa.schema([pa.field("<b>n</b>", pa.int64(), metadata={"comment": "<script>"})])

    html = lakebed.DatasetDescriptor(schema=schema).schema._repr_html_()

    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "<b>n" not in html

"""Datasets of Kite, adopted where they lie. The trees are made by the rules of Kite's source."""

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kite_trees import bucket, to_expression, to_properties, write_avro, write_kite

import lakebed
from lakebed import DatasetDescriptor, by
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.kite_forms import parse_expression, parse_properties

USER = {
    "type": "record",
    "name": "User",
    "namespace": "org.kitesdk.examples",
    "fields": [
        {"name": "userId", "type": "long"},
        {"name": "username", "type": "string"},
        {"name": "seen", "type": "long"},
        {
            "name": "position",
            "type": {
                "type": "record",
                "name": "Position",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["FREE", "PAID"]}},
    ],
}
EXPRESSION = (
    '[year("seen", "year"), month("seen", "month"), day("seen", "day"), '
    'hash("seen", "seen_hash", 3), hash("userId", "userId_hash", 53), '
    'identity("username", "username_copy", "java.lang.String", -1), '
    'identity("position.city", "city", "java.lang.String", 5)]'
)
MOMENTS = [1384912178434, 1379020547042, 1384204547042, -1, 0]


def user(number: int, seen: int, name: str = "jane", city: str = "NY/USA") -> dict[str, Any]:
    return {
        "userId": number,
        "username": name,
        "seen": seen,
        "position": {"city": city},
        "kind": "PAID",
    }


def place(row: Any) -> list[tuple[str, object]]:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=row["seen"])
    return [
        ("year", moment.year),
        ("month", moment.month),
        ("day", moment.day),
        ("seen_hash", bucket(row["seen"], 3)),
        ("userId_hash", bucket(row["userId"], 53)),
        ("username_copy", row["username"]),
        ("city", row["position"]["city"]),
    ]


USERS = [
    user(1234, MOMENTS[0]),
    user(-1, MOMENTS[1], "John Doe", "a=b"),
    user(2**32, MOMENTS[2], "100%", "é~*,+"),
    user(7, MOMENTS[3], "日本", ""),
    user(8, MOMENTS[4], "_x", ".."),
]


@pytest.fixture
def users(tmp_path: Path) -> lakebed.Dataset:
    write_kite(tmp_path / "ns" / "users", [USER], EXPRESSION, USERS, place)
    return lakebed.open_repository(tmp_path / "ns").adopt("users", kite=True)


def rows(view: lakebed.View) -> list[dict[str, Any]]:
    return sorted(view.kite.reader(), key=lambda row: row["userId"])


def test_every_row_is_read_and_found_by_its_source_alone(users: lakebed.Dataset) -> None:
    assert rows(users) == sorted(USERS, key=lambda row: row["userId"])
    for one in USERS:
        found = users.where(f"userId = {one['userId']} AND seen = {one['seen']}")
        assert (rows(found), len(found.plan())) == ([one], 1)
    assert len(users.kite.with_("username", "John Doe").plan()) == 1
    assert len(users.kite.from_("seen", MOMENTS[2]).plan()) == 2


def test_levels_are_kites_own_names_and_userid_1234_is_in_bucket_15(
    users: lakebed.Dataset, tmp_path: Path
) -> None:
    (file,) = users.where("userId = 1234").files()

    (partition,) = (one for one in users.inspect.partitions() if one.path == file.partition)
    assert partition.values == {
        "year": 2013,
        "month": 11,
        "day": 20,
        "seen_hash": bucket(MOMENTS[0], 3),
        "userId_hash": 15,
        "username_copy": "jane",
        "city": "NY/USA",
    }
    assert list((tmp_path / "ns" / "users").glob("year=2013/month=11/day=20/*/userId_hash=15"))


def test_adopted_dataset_goes_on_with_one_strategy(users: lakebed.Dataset) -> None:
    users.append([user(1234, MOMENTS[0], "again")])
    assert users.where("userId = 1234").count() == 2
    users.where("username = 'jane'").delete()
    users.compact()
    assert users.where("userId_hash = 15").count() == 1
    assert [one for one in users.check().findings if one.severity != "note"] == []


def test_no_file_of_kite_is_changed_and_what_it_hides_is_not_read(tmp_path: Path) -> None:
    home = tmp_path / "ns" / "users"
    write_kite(home, [USER], EXPRESSION, USERS, place)
    (home / ".signals").mkdir()
    (home / ".signals" / "unbounded").touch()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}

    users = lakebed.open_repository(tmp_path / "ns").adopt("users", kite=True)

    assert users.count() == len(USERS)
    assert {path: path.read_bytes() for path in before} == before


def test_paths_are_read_as_tolerantly_as_kite_reads_them(tmp_path: Path) -> None:
    home = tmp_path / "seen"
    expression = '[year("seen", "year"), month("seen", "month")]'
    write_kite(home, [USER], expression, [])
    write_avro(home / "2013" / "09", USER, [user(1, MOMENTS[1])])
    write_avro(home / "year=2013" / "month=9", USER, [user(2, MOMENTS[1])])
    write_avro(home / "even=strange=2013" / "11", USER, [user(3, MOMENTS[2])])
    write_avro(home / "year=2013" / "month=11" / "deeper", USER, [user(4, MOMENTS[2])])
    repository = lakebed.open_repository(tmp_path)

    found = repository.adopt("seen", kite=True, dry_run=True)
    seen = repository.adopt("seen", found)

    assert [one.reason for one in found.taken_for("left")] == [
        "Kite reads files 2 directories deep"
    ]
    assert [one.path for one in seen.inspect.partitions()] == [
        "year=2013/month=11",
        "year=2013/month=9",
    ]
    assert [row["userId"] for row in rows(seen)] == [1, 2, 3]


def test_files_of_older_schemas_are_read_as_the_newest_says(tmp_path: Path) -> None:
    home = tmp_path / "users"
    newer = {
        **USER,
        "fields": [*USER["fields"], {"name": "age", "type": ["null", "int"], "default": None}],
    }
    write_kite(home, [USER, newer], 'hash("userId", "userId_hash", 53)', [])
    write_avro(home / "userId_hash=15", USER, [user(1234, 0)])
    write_avro(home / "userId_hash=20", newer, [user(1, 0) | {"userId": 20, "age": 7}])

    users = lakebed.open_repository(tmp_path).adopt("users", kite=True)

    assert [(row["userId"], row["age"]) for row in rows(users)] == [(20, 7), (1234, None)]
    assert users.where("age = 7").count() == 1


@pytest.mark.parametrize("form", ["avro", "parquet"])
@pytest.mark.parametrize("kind", ["string", ["string", "null"]])
def test_field_that_older_files_lack_has_its_default(
    tmp_path: Path, form: str, kind: object
) -> None:
    older = {"type": "record", "name": "U", "fields": [{"name": "id", "type": "long"}]}
    plan = {"name": "plan", "type": kind, "default": "free"}
    newer = {**older, "fields": [*older["fields"], plan]}
    home = tmp_path / "users"
    expression = 'identity("plan", "plan_copy", "java.lang.String", -1)'
    write_kite(home, [older, newer], expression, [], properties={"format": form})
    files = {"free": {"id": [1]}, "paid": {"id": [2], "plan": ["paid"]}}
    for name, columns in files.items():
        folder = home / f"plan_copy={name}"
        entities = pa.table(columns)
        if form == "avro":
            write_avro(folder, newer if "plan" in columns else older, entities.to_pylist())
        else:
            folder.mkdir()
            pq.write_table(entities, folder / "x.parquet")

    users = lakebed.open_repository(tmp_path).adopt("users", kite=True)

    whole = [{"id": 1, "plan": "free"}, {"id": 2, "plan": "paid"}]
    assert sorted(users.kite.reader(), key=lambda row: row["id"]) == whole
    assert list(users.where("plan = 'free'").kite.reader()) == whole[:1]
    assert users.where("plan != 'free'").count() == 1


def test_change_of_a_default_is_none_of_what_older_files_hold(tmp_path: Path) -> None:
    first = {"type": "record", "name": "U", "fields": [{"name": "id", "type": "long"}]}
    write_kite(tmp_path / "users", [first], None, [{"id": 1}])
    repository = lakebed.open_repository(tmp_path)
    users = repository.adopt("users", kite=True)

    for default in ("free", "paid"):
        plan = {"name": "plan", "type": ["string", "null"], "default": default}
        schema = {**first, "fields": [*first["fields"], plan]}
        repository["users"].evolve(
            DatasetDescriptor(schema=schema, format="avro", compression="snappy"),
            base=repository["users"].version,
        )

    assert list(repository["users"].kite.reader()) == [{"id": 1, "plan": "free"}]
    assert users.count() == 1


def test_parquet_of_kite_is_adopted(tmp_path: Path) -> None:
    home = tmp_path / "users"
    flat = {**USER, "fields": USER["fields"][:3]}
    write_kite(
        *(home, [flat], 'range("userId", "userId_bound", 5, 10)', []),
        properties={"format": "parquet", "owner": "me"},
    )
    for index, ids in enumerate(([-7, 5], [6, 10])):
        folder = home / f"userId_bound={index}"
        folder.mkdir()
        table = pa.table({"userId": ids, "username": ["a", "b"], "seen": [0, 0]})
        pq.write_table(table, folder / "x.parquet")

    users = lakebed.open_repository(tmp_path).adopt("users", kite=True)

    assert [row["userId"] for row in rows(users.where("userId > 5"))] == [6, 10]
    assert len(users.where("userId > 5").plan()) == 1
    assert users.descriptor.properties == {"owner": "me"}


def test_provided_partitions_and_unpartitioned_datasets(tmp_path: Path) -> None:
    write_kite(
        tmp_path / "a", [USER], 'provided("release", "int")', USERS, lambda _: [("release", 7)]
    )
    write_kite(tmp_path / "b", [USER], None, USERS, codec="deflate")
    repository = lakebed.open_repository(tmp_path)

    released, plain = (repository.adopt(name, kite=True) for name in "ab")

    assert released.kite.with_("release", 7).count() == len(USERS)
    released.kite.with_("release", 8).append(USERS[:1])
    assert released.count() == len(USERS) + 1
    assert (plain.count(), plain.descriptor.is_partitioned) == (len(USERS), False)


@pytest.mark.parametrize("text", ["1_0", "+5", "%203", "99999999999", "x"])
def test_number_that_kite_does_not_read_is_no_partition(tmp_path: Path, text: str) -> None:
    home = tmp_path / "users"
    write_kite(home, [USER], 'provided("release", "int")', [])
    write_avro(home / f"release={text}", USER, USERS)

    with pytest.raises(InvalidInputError, match=r"cannot be adopted: .* of type int"):
        lakebed.open_repository(tmp_path).adopt("users", kite=True)


def test_value_that_is_no_number_equals_itself_as_a_partition(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "ratio", "type": "double"}]
    schema = {"type": "record", "name": "Part", "fields": fields}
    expression = 'identity("ratio", "ratio_copy", "java.lang.Double", -1)'
    parts = [{"id": 1, "ratio": math.nan}, {"id": 2, "ratio": 0.5}]
    texts = {1: "NaN", 2: "0.5"}
    write_kite(
        tmp_path / "a", [schema], expression, parts, lambda one: [("ratio_copy", texts[one["id"]])]
    )

    adopted = lakebed.open_repository(tmp_path).adopt("a", kite=True)

    assert [row["id"] for row in adopted.kite.with_("ratio", 0.5).kite.reader()] == [2]
    assert sorted(row["id"] for row in adopted.kite.reader()) == [1, 2]


def test_row_in_a_directory_that_is_not_its_own_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "users"
    write_kite(home, [USER], 'hash("userId", "userId_hash", 53)', [])
    write_avro(home / "userId_hash=16", USER, [user(1234, 0)])

    with pytest.raises(InvalidInputError, match="userId_hash=15 in userId_hash=16"):
        lakebed.open_repository(tmp_path).adopt("users", kite=True)

    assert [one.name for one in tmp_path.iterdir()] == ["users"]


def test_link_is_refused_by_its_name_as_its_rows_would_be_missing(tmp_path: Path) -> None:
    home = tmp_path / "ns" / "users"
    write_kite(home, [USER], EXPRESSION, USERS, place)
    (home / "year=2012").symlink_to(tmp_path)

    with pytest.raises(InvalidInputError, match=r"year=2012' is a symbolic link"):
        lakebed.open_repository(tmp_path / "ns").adopt("users", kite=True)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda home: (home / ".metadata" / "descriptor.properties").unlink(), NotFoundError),
        (lambda home: (home / ".metadata" / "schemas" / "1.avsc").write_text("{"), FormatError),
        (lambda home: (home / ".metadata" / "schemas" / "1.avsc").write_text("[]"), LakebedError),
        (lambda home: set_property(home, "format=csv"), InvalidInputError),
        (lambda home: set_property(home, "partitionExpression=exit()"), PartitionSpecError),
        (lambda home: (home / "userId_hash=15" / "x.avro").write_bytes(b"Obj"), InvalidInputError),
        (lambda home: (home / "userId_hash=15").rename(home / "userId_hash=x"), InvalidInputError),
    ],
)
def test_what_cannot_be_adopted_is_refused(tmp_path: Path, change: Any, error: type) -> None:
    home = tmp_path / "users"
    expression = 'hash("userId", "userId_hash", 53)'
    write_kite(home, [USER], expression, USERS[:1], lambda _: [("userId_hash", 15)])
    change(home)

    with pytest.raises(error):
        lakebed.open_repository(tmp_path).adopt("users", kite=True)

    assert [one.name for one in tmp_path.iterdir()] == ["users"]


def set_property(home: Path, line: str) -> None:
    with (home / ".metadata" / "descriptor.properties").open("a") as file:
        file.write(f"{line}\n")


EMBEDDED = {
    **USER,
    "partitions": [
        {"type": "year", "source": "seen"},
        {"type": "month", "source": "seen"},
        {"type": "hash", "source": "seen", "buckets": 3},
        {"type": "hash", "source": "userId", "buckets": 53},
        {"type": "identity", "source": "username"},
    ],
    "mapping": [
        {"source": "username", "type": "key"},
        {"source": "userId", "type": "column", "value": "meta:id"},
        {"source": "seen", "type": "counter", "family": "meta", "qualifier": "n"},
    ],
}


def test_strategy_embedded_in_an_avro_schema_is_taken_with_kites_names(tmp_path: Path) -> None:
    descriptor = DatasetDescriptor(schema=json.dumps(EMBEDDED), format="avro", compression="snappy")
    users = lakebed.open_repository(tmp_path).create("users", descriptor)

    users.append(USERS[:1])

    assert descriptor.is_partitioned
    names = ["year", "month", "seen_hash", "userId_hash", "username_copy"]
    assert [one.name for one in descriptor.partition_by] == names
    (file,) = users.files()
    assert file.key.startswith("users/data/year=2013/month=11/seen_hash=")
    assert "/userId_hash=15/username_copy=jane/" in file.key
    assert json.loads(users.descriptor.properties["kite.mapping"]) == EMBEDDED["mapping"]


def test_embedded_strategy_gives_way_to_one_that_is_given() -> None:
    given = DatasetDescriptor(schema=EMBEDDED, partition_by=by.identity("username"))
    assert [one.name for one in given.partition_by] == ["username"]
    with pytest.raises(SchemaMismatchError, match="mapping"):
        DatasetDescriptor(schema=EMBEDDED, partition_by=())
    plain = {key: value for key, value in EMBEDDED.items() if key != "mapping"}
    assert not DatasetDescriptor(schema=plain, partition_by=()).is_partitioned


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        [1],
        [{"source": "userId", "type": "nothing"}],
        [{"source": "userID", "type": "column", "family": "f", "qualifier": "q"}],
        [{"source": "userId", "type": "column", "family": "f"}],
        [{"source": "username", "type": "counter", "family": "f", "qualifier": "q"}],
        [{"source": "username", "type": "keyAsColumn", "family": "f"}],
        [{"source": "userId", "type": "key"}],
        [{"source": "userId", "type": "occVersion"}, {"source": "seen", "type": "occVersion"}],
        [{"source": "userId", "type": ["column"], "family": "f", "qualifier": "q"}],
    ],
)
def test_mapping_that_does_not_fit_is_refused(mapping: object) -> None:
    with pytest.raises(SchemaMismatchError, match="mapping"):
        DatasetDescriptor(schema={**EMBEDDED, "mapping": mapping})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hash",
        "hash('a')",
        'hash("a", "b", 2, 3)',
        'hash("a", "b", buckets=2)',
        '__import__("os", "system")',
        'year("a", "b").x',
        '[hash("a", "b", 2), 1]',
        'hash("a", "b", True)',
        "(" * 5000,
        'hash("a", "b", 1)' * 10_000,
    ],
)
def test_expression_that_is_none_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(LakebedError):
        parse_expression(text)


STRATEGIES = st.lists(
    st.sampled_from(
        [
            *(
                by.year("seen"),
                by.month("seen"),
                by.day("seen"),
                by.hour("seen"),
                by.minute("seen"),
            ),
            by.hash("userId", 53),
            by.hash("username", 16, name="part"),
            by.range("userId", [-5, 10]),
            by.range("username", ["g", "it's"], name="letters"),
            by.fixed_range("userId", 100),
            by.identity("username", name="username_copy"),
            by.identity("position.city", name="city"),
            by.date_format("seen", "yyyy-MM-dd'T'HH", name="stamp"),
            by.provided("release", "int"),
            by.provided("tag"),
        ]
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda function: function.name,
)


@given(functions=STRATEGIES)
def test_expression_gives_every_strategy_back(functions: list) -> None:
    descriptor = DatasetDescriptor(schema=USER, partition_by=functions)

    text = to_expression(descriptor.partition_by, descriptor.schema)

    assert parse_expression(text) == descriptor.partition_by


@given(properties=st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_read_back_as_they_were(properties: dict[str, str]) -> None:
    assert parse_properties(to_properties(properties)) == properties


def test_schema_that_is_missing_is_told_with_its_place(tmp_path: Path) -> None:
    metadata = tmp_path / "ns" / "users" / ".metadata"
    metadata.mkdir(parents=True)
    (metadata / "descriptor.properties").write_text("format=avro\n")

    with pytest.raises(lakebed.errors.NotFoundError, match=r"schema\.avsc.*users/\.metadata"):
        lakebed.open_repository(tmp_path / "ns").adopt("users", kite=True)

"""Fields of raw files that the dataset lacks: rejected, ignored or kept, in every format."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from heads import head_key
from raw_files import MeanwhileStore, run_through, version_in
from raw_folder import NUMBERS, Folder, avro_of, csv_of, objects, parquet_of

import lakebed
from lakebed import DatasetDescriptor, LoadOptions
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.store import open_store
from lakebed.testing import DelegatingStore
from lakebed.work.ingest import execution
from lakebed.work.ingest.execution import census_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


Make = Callable[..., bytes]


def csv_file(ids, **others: str) -> bytes:
    return gzip.compress(csv_of(ids, *others).encode())


def json_file(ids, **others: str) -> bytes:
    return objects(ids, **others).encode()


FILES: dict[str, Make] = {
    "csv.gz": csv_file,
    "jsonl": json_file,
    "parquet": parquet_of,
    "avro": avro_of,
}


def notes_of(folder: Folder) -> list[tuple[int, str | None]]:
    return sorted((row["id"], row.get("note")) for row in folder.dataset.kite.reader())


@pytest.mark.parametrize("suffix", FILES)
def test_a_further_field_is_kept_as_a_nullable_one_by_one_commit_before_the_rows(
    folder: Folder, suffix: str
) -> None:
    folder.put(f"a.{suffix}", FILES[suffix]([1, 2]))
    folder.run()
    folder.put(f"b.{suffix}", FILES[suffix]([3, 4], note="x"))

    report = folder.run(unknown="keep")

    assert (report.kept_back, report.rejected_count, report.row_count) == ((), 0, 2)
    assert report.schema_changes == ("+note: string",)
    assert notes_of(folder) == [(1, None), (2, None), (3, "x"), (4, "x")]
    assert [entry.operation for entry in folder.dataset.history()] == [
        "create", "ingest", "update", "ingest",
    ]  # fmt: skip
    assert folder.run(unknown="keep").unchanged_count == 2


@pytest.mark.parametrize("suffix", FILES)
def test_a_further_field_is_ignored_and_counted(folder: Folder, suffix: str) -> None:
    folder.put(f"a.{suffix}", FILES[suffix]([1, 2]))
    folder.put(f"b.{suffix}", FILES[suffix]([3, 4], note="x"))

    report = folder.run(unknown="ignore")

    assert (folder.ids(), report.kept_back, report.rejected_count) == ([1, 2, 3, 4], (), 0)
    assert (report.ignored_file_count, report.ignored_row_count) == (1, 2)
    assert report.ignored_fields == ("note",)
    assert folder.dataset.schema.names == ("id", "amount")


@pytest.mark.parametrize("suffix", FILES)
def test_what_was_rejected_is_taken_once_the_rule_is_another(folder: Folder, suffix: str) -> None:
    folder.put(f"a.{suffix}", FILES[suffix]([1, 2], note="x"))
    assert folder.run().row_count == 0

    report = folder.run(unknown="keep")

    assert (report.row_count, notes_of(folder)) == (2, [(1, "x"), (2, "x")])
    assert folder.quarantined() == []


def test_lines_of_a_file_that_was_read_are_taken_once_the_rule_is_another(folder: Folder) -> None:
    folder.put("a.jsonl", objects(range(20)) + objects([20, 21], note="x"))
    assert folder.run().row_count == 20

    report = folder.run(unknown="ignore")

    assert (report.replaced_count, report.ignored_row_count) == (1, 2)
    assert (folder.ids(), folder.quarantined()) == (list(range(22)), [])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2"], "long"),
        (["1", "2.5"], "double"),
        (["9007199254740993", "2.5"], "string"),
        (["2026-09-01", "2026-09-01T10:00"], "timestamp"),
        (["true", "false"], "boolean"),
        (["1", "x"], "string"),
    ],
)
def test_the_type_of_a_column_is_that_of_all_files_of_the_run(
    folder: Folder, cells: list[str], kind: str
) -> None:
    for number, cell in enumerate(cells):
        folder.put(f"{number}.csv", f"id,amount,note\n{number},0,{cell}\n")

    report = folder.run(unknown="keep")

    assert report.schema_changes == (f"+note: {kind}",)
    assert (report.row_count, report.rejected_count) == (2, 0)


def test_of_types_that_conflict_most_values_decide_and_the_others_are_rejected_by_name(
    folder: Folder,
) -> None:
    folder.put("a.jsonl", objects(range(20), note=7))
    folder.put("b.jsonl", objects(range(20, 38), note=8) + objects([38], note="eight") + "bad\n")

    report = folder.run(unknown="keep")

    assert report.schema_changes == ("+note: long",)
    assert (report.row_count, report.rejected_line_count) == (38, 2)
    assert "'note'" in folder.quarantined()[0]["reason"]


def test_of_types_of_files_that_conflict_the_minority_is_refused_as_a_whole(folder: Folder) -> None:
    folder.put("a.parquet", parquet_of(range(10), note="x"))
    other = folder.put("b.parquet", parquet_of([10], note=1.5))

    report = folder.run(unknown="keep")

    (left,) = report.kept_back
    assert (left.location, left.why, report.row_count) == (other, "refused", 10)
    assert "'note' is of type double" in left.detail


def test_fields_inside_of_records_are_kept_and_ignored_too(tmp_path: Path) -> None:
    for suffix in ("jsonl", "parquet", "avro"):
        place = tmp_path / suffix
        place.mkdir()
        nested = DatasetDescriptor(
            schema=pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int64())]))])
        )
        rows = [{"id": 1, "at": {"x": 1, "y": 2}}]
        file = Folder(place)
        file.put(f"a.{suffix}", _nested_file(rows, suffix))

        ignored = file.run(unknown="ignore", create=nested)
        assert (ignored.row_count, ignored.ignored_fields) == (1, ("at.y",))
        kept = file.run(unknown="keep", again="rejected")
        assert kept.row_count == 0  # it was read, and nothing of it was rejected
        file.put(f"b.{suffix}", _nested_file([{"id": 2, "at": {"x": 1, "y": 2}}], suffix))
        assert file.run(unknown="keep").row_count == 1
        assert {row["id"]: row["at"]["y"] for row in file.dataset.kite.reader()} == {1: None, 2: 2}


def _nested_file(rows: list[dict[str, object]], suffix: str) -> bytes:
    if suffix == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    sink = io.BytesIO()
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), sink)
    else:
        at = {
            "type": "record",
            "name": "at",
            "fields": [{"name": name, "type": "long"} for name in "xy"],
        }
        fields = [{"name": "id", "type": "long"}, {"name": "at", "type": at}]
        fastavro.writer(sink, {"type": "record", "name": "n", "fields": fields}, rows)
    return sink.getvalue()


def test_fields_of_submissions_are_kept(folder: Folder) -> None:
    create = DatasetDescriptor(
        schema=pa.schema([("uuid", pa.string()), ("n", pa.int64())]), partition_by="n"
    )
    folder.put("a.tsv", 'u1\t{"n": 1, "os": "Linux"}\nu2\t{"n": 1}\n')

    report = folder.run(unknown="keep", create=create)

    assert report.schema_changes == ("+os: string",)
    assert {row["uuid"]: row["os"] for row in folder.dataset.kite.reader()} == {
        "u1": "Linux",
        "u2": None,
    }


@pytest.mark.parametrize("depth", [51, 400, 3_000])
@pytest.mark.parametrize("text", [("[", "]"), ('{"a": ', "}")], ids=["lists", "objects"])
def test_a_value_that_is_nested_too_deep_makes_no_field(
    folder: Folder, text: tuple[str, str], depth: int
) -> None:
    deep = f"{text[0] * depth}1{text[1] * depth}"
    folder.put("a.jsonl", objects(range(30)) + f'{{"id": 30, "note": {deep}}}\n')

    report = folder.run(unknown="keep")

    assert (report.row_count, report.rejected_count, report.schema_changes) == (30, 1, ())
    assert folder.ids() == list(range(30))


def test_files_to_read_again_may_be_given_by_an_iterator(folder: Folder) -> None:
    path = folder.put("a.jsonl", objects([1]))
    folder.run()
    folder.put("b.jsonl", objects([2], note="x"))

    report = folder.run(unknown="keep", again=iter([path]))  # the schema grows in between

    assert (report.file_count, report.replaced_count) == (2, 1)


def test_files_are_looked_through_once_for_fields_that_the_dataset_lacks(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a.jsonl", objects([1], note="x"))
    looked_at: list[str] = []

    def counting(workers, files, *args):
        looked_at.extend(file.location for file in files)
        return census_of(workers, files, *args)

    monkeypatch.setattr(execution, "census_of", counting)

    folder.run(unknown="keep")

    assert len(looked_at) == 1


def test_a_field_without_a_value_is_left_out(folder: Folder) -> None:
    folder.put("a.jsonl", '{"id": 1, "note": null}\n')
    folder.put("b.jsonl", '{"id": 2}\n')

    report = folder.run(unknown="keep")

    assert (report.schema_changes, folder.ids(), report.rejected_count) == ((), [1, 2], 0)


def test_a_column_whose_name_no_field_may_have_is_kept_by_a_legal_one(folder: Folder) -> None:
    folder.put("a.csv", "id,amount,a.note\n1,1,x\n2,2,y\n")

    report = folder.run(unknown="keep")

    assert report.kept_back == ()
    assert [row["a_note"] for row in folder.dataset.kite.reader()] == ["x", "y"]


@pytest.mark.parametrize("suffix", FILES)
def test_a_field_whose_name_differs_from_another_only_in_case_is_not_kept(
    folder: Folder, suffix: str
) -> None:
    folder.put(f"a.{suffix}", FILES[suffix]([1], note="x"))
    folder.run(unknown="keep")
    odd = folder.put(f"b.{suffix}", FILES[suffix]([2, 3], Note="y"))

    report = folder.run(unknown="keep")

    (left,) = report.kept_back
    assert (left.location, report.schema_changes) == (odd, ())
    assert "'Note'" in left.detail
    assert folder.dataset.schema.names == ("id", "amount", "note")
    report = folder.run(unknown="ignore")
    assert (report.ignored_fields, notes_of(folder)) == (
        ("Note",),
        [(1, "x"), (2, None), (3, None)],
    )


def test_of_new_fields_that_differ_only_in_case_the_first_is_kept_at_any_depth(
    folder: Folder,
) -> None:
    folder.put("a.jsonl", '{"id": 1, "amount": 1, "Note": {"at": 1}}\n')
    folder.put("b.jsonl", '{"id": 2, "amount": 1, "note": {"at": 2}}\n')
    folder.put("c.jsonl", '{"id": 3, "amount": 1, "Note": {"at": 3, "AT": 4}}\n')

    report = folder.run(unknown="keep")

    assert report.schema_changes == ("+Note: struct<at: long>",)
    assert folder.ids() == [1]
    assert report.rejected_line_count == 2


def test_a_run_that_broke_off_after_the_schema_adds_it_once(folder: Folder) -> None:
    folder.put("a.jsonl", objects([1]))
    folder.run()
    folder.put("b.jsonl", objects([2], note="x"))

    def stop() -> None:
        raise KeyboardInterrupt

    class StopAtRows(MeanwhileStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == head_key("numbers") and int(version_in(data)) < 3:
                return self.inner._replace(key, data, if_match=if_match)
            return super()._replace(key, data, if_match=if_match)

    keep = dataclasses.replace(folder.ingest, unknown="keep")
    store = StopAtRows(open_store(folder.lake), head_key("numbers"), stop)
    with pytest.raises(KeyboardInterrupt):
        run_through(store, keep)
    assert (folder.ids(), folder.dataset.schema.names) == ([1], ("id", "amount", "note"))

    report = keep.run()

    assert (report.schema_changes, notes_of(folder)) == ((), [(1, None), (2, "x")])


def test_another_run_that_adds_the_same_field_meanwhile_is_no_conflict(folder: Folder) -> None:
    lakebed.open_repository(folder.lake).create("numbers", NUMBERS)
    folder.put("a.jsonl", objects([1], note="x"))
    wide = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])

    def meanwhile() -> None:
        folder.dataset.evolve(lambda old: dataclasses.replace(old, schema=wide))

    store = MeanwhileStore(open_store(folder.lake), head_key("numbers"), meanwhile)
    report = run_through(store, dataclasses.replace(folder.ingest, unknown="keep"))

    assert store.has_happened
    assert (report.row_count, notes_of(folder)) == (1, [(1, "x")])


def test_another_run_that_creates_the_dataset_and_adds_a_field_is_no_conflict(
    folder: Folder,
) -> None:
    folder.put("a.jsonl", objects([1], note="x"))
    keep = dataclasses.replace(folder.ingest, unknown="keep")

    class FasterStore(DelegatingStore):
        has_happened = False

        def _create(self, key: str, data: memoryview) -> str:
            if not self.has_happened:
                self.has_happened = True
                keep.run()
            return self.inner._create(key, data)

    report = run_through(FasterStore(open_store(folder.lake)), keep)

    assert (report.unchanged_count, notes_of(folder)) == (1, [(1, "x")])


@pytest.mark.parametrize(
    ("empty", "value", "kind"),
    [
        ([], [1], "list<long>"),
        ([[], {}], [{"a": 2}], "list<struct<a: long>>"),
        ({}, {"a": 1}, "struct<a: long>"),
        ({"a": []}, {"a": ["x"]}, "struct<a: list<string>>"),
        ({"a": None, "b": {}}, {"b": {"c": True}}, "struct<b: struct<c: boolean>>"),
    ],
)
def test_empty_list_or_object_decides_no_type(
    folder: Folder, empty: object, value: object, kind: str
) -> None:
    keep = dataclasses.replace(folder.ingest, unknown="keep")
    folder.put("a.jsonl", json.dumps({"id": 1, "amount": 1, "note": empty}))
    assert (keep.run().schema_changes, folder.quarantined()) == ((), [])
    folder.put("b.jsonl", json.dumps({"id": 2, "amount": 2, "note": value}))

    report = keep.run()

    assert (report.schema_changes, report.kept_back) == ((f"+note: {kind}",), ())
    assert notes_of(folder) == [(1, None), (2, value)]


@pytest.mark.parametrize(("unknown", "ids"), [("ignore", [1, 2]), ("keep", [2]), ("reject", [])])
def test_parquet_whose_further_column_stands_there_twice_stops_no_other_file(
    folder: Folder, unknown: str, ids: list[int]
) -> None:
    twice = pa.Table.from_arrays(
        [pa.array([1]), pa.array([1]), pa.array(["x"]), pa.array([None, ], pa.string())],
        names=["id", "amount", "note", "note"],
    )  # fmt: skip
    file = io.BytesIO()
    pq.write_table(twice, file)
    folder.put("a.parquet", file.getvalue())
    folder.put("b.parquet", parquet_of([2], note="x"))

    report = folder.run(unknown=unknown)

    assert folder.ids() == ids
    assert len(report.kept_back) == 2 - len(ids)


def test_a_load_has_the_same_rule(folder: Folder) -> None:
    dataset = lakebed.open_repository(folder.lake).create("numbers", NUMBERS)
    path = folder.put("a.csv", csv_of([1, 2], "note"))

    with pytest.raises(SchemaMismatchError, match="note"):
        dataset.load(path)
    ignored = dataset.load(path, options=LoadOptions(unknown="ignore"))
    assert (ignored.row_count, ignored.ignored_row_count, ignored.ignored_fields) == (
        2, 2, ("note",),
    )  # fmt: skip
    assert dataset.load(path, options=LoadOptions(unknown="keep")).row_count == 2
    assert [row["note"] for row in folder.dataset.kite.reader()].count("x") == 2


def test_a_rule_that_is_none_is_refused(folder: Folder) -> None:
    with pytest.raises(InvalidInputError, match="unknown is 'drop'"):
        dataclasses.replace(folder.ingest, unknown="drop")
    with pytest.raises(InvalidInputError, match="unknown is 'drop'"):
        LoadOptions(unknown="drop")  # type: ignore[arg-type]

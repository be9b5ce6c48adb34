"""Publication to a metastore after each commit, by properties."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from table_doors import DOORS, assert_shows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.work.commits import CommitStream

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture
def table(spark):
    name = f"hive_tests.t{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def rows(batch: int, *days: str) -> list[dict]:
    return [{"dt": day, "batch": batch, "n": n} for day in days for n in range(2)]


def rows_of(frame) -> list[tuple]:
    return sorted(map(tuple, frame.select("dt", "batch", "n").collect()))


def create(lake, days, **properties: str) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=days.descriptor.schema, partition_by="dt", properties=properties
    )
    return lake.create("auto", descriptor)


def test_table_delta_and_iceberg_show_each_commit(spark, lake, days, table):
    auto = create(
        lake,
        days,
        **{
            "publish.hive": "true",
            "publish.hive.table": table,
            "publish.hive.mode": "batches",
            "publish.delta": "true",
            "publish.iceberg": "true",
        },
    )
    for do in (
        lambda: auto.append(rows(1, "a", "b"), run="first"),
        lambda: auto.append(rows(2, "a")),
        lambda: auto.rerun(rows(3, "b", "c"), run="first", replace_all=True),
        lambda: auto.merge(rows(4, "c", "d"), ["dt", "n"]),
        lambda: auto.delete(auto.where("dt = 'a'")),
        lambda: auto.rollback(version=2),
    ):
        do()
        assert rows_of(spark.table(table)) == rows_of(auto.spark(spark))
        for door in DOORS:
            assert_shows(door, auto)
    assert auto.publish("hive", spark, table=table, check=True).was_in_step


def create_hive(lake, days, table: str, **options: str) -> lakebed.Dataset:
    given = {f"publish.hive.{name}": value for name, value in options.items()}
    return create(lake, days, **{"publish.hive": "true", "publish.hive.table": table}, **given)


def assert_in_step(spark, auto, table: str) -> None:
    assert rows_of(spark.table(table)) == rows_of(auto.spark(spark))
    assert not [shown for shown in auto.inspect.publications() if shown.is_stale]


def test_metastore_is_said_by_the_process_and_not_by_storage(
    spark, lake, days, table, caplog, monkeypatch, tmp_path
):
    place = tmp_path / "elsewhere"
    with pytest.raises(InvalidInputError, match=r"Unknown property 'publish\.hive\.metastore'"):
        create_hive(lake, days, table, metastore=str(place))
    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a"))
    assert_in_step(spark, auto, table)

    monkeypatch.setenv("LAKEBED_METASTORE", "thrift://127.0.0.1:1")
    commit = auto.overwrite(rows(2, "a"))

    assert "The running Spark session uses another metastore" in caplog.text
    assert [failure.table for failure in commit.not_published] == [f"hive {table}"]
    assert [(shown.version, shown.is_stale) for shown in auto.inspect.publications()] == [(1, True)]
    monkeypatch.delenv("LAKEBED_METASTORE")
    assert not auto.protections.add(version=2, reason="of no concern to Hive").not_published
    assert_in_step(spark, auto, table)


def test_table_is_in_step_after_each_of_ten_ingests_of_two_places_with_late_files(
    spark, lake, days, table, tmp_path, caplog
):
    auto = create_hive(lake, days, table)
    raw = tmp_path / "raw"
    raw.mkdir()
    places = lakebed.Ingest(
        name="places", into=auto.uri, source=lakebed.FromFiles(paths=str(raw / "*.jsonl"))
    )
    batch = 0

    def arrive(place: str, day: int) -> None:
        nonlocal batch
        batch += 1
        lines = (json.dumps(row) + "\n" for row in rows(batch, f"d{day}"))
        (raw / f"{place}-{batch}.jsonl").write_text("".join(lines))

    for day in range(10):
        for place in ("north", "south"):
            arrive(place, day)
            report = places.run()
            assert (report.row_count, report.not_published) == (2, ())
            assert_in_step(spark, auto, table)
        arrive("late", max(0, day - 3))
        assert not places.run().not_published
        assert_in_step(spark, auto, table)

    assert "not published" not in caplog.text
    homes = {Path(file.key).parent for file in auto.files()}
    assert len(homes) == len({home.parent for home in homes}) == 10
    assert auto.count() == 60
    assert auto.publish("hive", spark, table=table, check=True).was_in_step


def test_ingest_that_finds_nothing_to_read_brings_a_stale_table_into_step(
    spark, lake, days, table, tmp_path, monkeypatch
):
    auto = create_hive(lake, days, table)
    (tmp_path / "a.jsonl").write_text(json.dumps(rows(1, "a")[0]))
    ingest = lakebed.Ingest(
        name="places", into=auto.uri, source=lakebed.FromFiles(paths=str(tmp_path / "a.jsonl"))
    )
    monkeypatch.setenv("LAKEBED_METASTORE", "thrift://127.0.0.1:1")
    assert ingest.run().not_published
    assert ingest.run().not_published
    monkeypatch.delenv("LAKEBED_METASTORE")

    report = ingest.run()

    assert (report.commit, report.not_published) == (None, ())
    assert_in_step(spark, auto, table)


def test_append_and_the_gathering_of_its_partition_are_one_put_and_two_versions(
    spark, lake, days, table
):
    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a", "b"))

    commit = auto.append(rows(2, "a"), run="second")

    first, gathering, second = auto.history()[1:]
    assert (first.operation, gathering.operation, second.operation) == (
        "append",
        "compact",
        "append",
    )
    assert gathering.committed_at == second.committed_at
    assert gathering.partitions == ("dt=a",)
    assert (commit.version, commit.row_count, commit.files_removed) == (3, 2, ())
    assert len({Path(key).parent for key in (*gathering.files_added, *commit.files_added)}) == 1
    assert auto.at(batch_id=commit.batch_id, alone=True).count() == 2
    assert auto.at(version=1).count() == 4
    stream = CommitStream(lake.store, "auto")
    brought = list(stream.between(stream.start_at_version(1), stream.end()))
    assert [(delivery.version, delivery.operation) for delivery in brought] == [
        (1, "append"),
        (3, "append"),
    ]
    auto.rollback(version=1)
    assert auto.count() == 4
    assert_in_step(spark, auto, table)
    assert not auto.check(deep=True).findings


def test_append_survives_that_what_it_gathered_is_taken_out_meanwhile(
    spark, lake, days, table, monkeypatch
):
    from lakebed.tables import automatic

    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a", "b"))
    gather, rivals = automatic.gather_beside, [2, 3]

    def beaten(store, pending):
        gathered = gather(store, pending)
        if rivals:
            with monkeypatch.context() as alone:
                alone.setattr(automatic, "gather_beside", gather)
                lake.open("auto").append(rows(rivals.pop(), "a"))
        return gathered

    monkeypatch.setattr(automatic, "gather_beside", beaten)
    commit = auto.append(rows(4, "a"))

    assert not commit.not_published
    assert auto.count() == 10
    assert_in_step(spark, auto, table)
    assert not auto.check(deep=True).findings


def test_each_verb_leaves_a_table_that_shows_it(spark, lake, days, table, tmp_path, caplog):
    auto = create_hive(lake, days, table)

    def load():
        path = tmp_path / "more.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(7, "a", "d")))
        auto.load(path, run="loaded")

    def transact():
        with auto.transaction() as change:
            change.delete(auto.where("dt = 'b'"))
            change.append(rows(8, "a"))

    def stage():
        auto.staged.add(rows(9, "a")).commit()

    for do in (
        lambda: auto.append(rows(1, "a", "b"), run="first"),
        lambda: auto.append(rows(2, "a")),
        lambda: auto.rerun(rows(3, "a", "c"), run="second", replace_all=True),
        lambda: auto.rerun(rows(4, "b", "c"), run="first", replace_all=True),
        lambda: auto.merge(rows(5, "c", "d"), ["dt", "n"]),
        lambda: auto.delete(auto.where("dt = 'a' AND n = 0")),
        lambda: auto.append(auto.where("dt = 'a'").spark(spark)),
        load,
        transact,
        stage,
        lambda: auto.compact(),
        lambda: auto.overwrite([], auto.where("dt = 'a'")),
        lambda: auto.rollback(version=4),
        lambda: auto.delete(auto.where("dt = 'c'")),
        lambda: auto.cleanup("0s", dry_run=False, metastore=spark),
    ):
        do()
        assert_in_step(spark, auto, table)
    assert "not published" not in caplog.text
    assert auto.publish("hive", spark, table=table, check=True).was_in_step


def test_gathered_rows_stay_with_the_run_that_wrote_them(spark, lake, days, table):
    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a"), run="first")
    auto.append(rows(2, "a"))
    auto.append(rows(3, "a"), run="third")

    auto.rerun(rows(4, "a"), run="third", replace_all=True)
    assert {row[1] for row in rows_of(spark.table(table))} == {1, 2, 4}
    auto.rerun(rows(5, "a"), run="first", replace_all=True)

    assert {row[1] for row in rows_of(spark.table(table))} == {2, 4, 5}
    assert_in_step(spark, auto, table)


def test_appends_to_one_partition_at_the_same_time_all_survive(spark, lake, days, table):
    auto = create_hive(lake, days, table)
    auto.append(rows(0, "a"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda batch: auto.append(rows(batch, "a")), range(1, 9)))
    auto.append(rows(9, "b"))

    assert auto.count() == 20
    assert_in_step(spark, auto, table)


def test_batches_are_shown_though_a_raw_file_was_replaced(spark, lake, days, table, tmp_path):
    auto = create_hive(lake, days, table, mode="batches")

    def ingest(**files: str) -> None:
        for name, days_of in files.items():
            (tmp_path / f"{name}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows(len(days_of), *days_of))
            )
        lakebed.Ingest(
            name="places", into=auto.uri, source=lakebed.FromFiles(paths=str(tmp_path / "*.jsonl"))
        ).run()

    ingest(north="ab", south="abc")
    assert_in_step(spark, auto, table)
    ingest(north="a")

    assert auto.count() == 8
    assert_in_step(spark, auto, table)


def test_what_cannot_be_shown_is_told_and_tried_again_by_the_next_commit(
    spark, lake, days, table, caplog
):
    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a"))

    commit = auto.append(rows(2, ""))  # which a metastore takes for null

    assert auto.count() == 4
    assert "not published after a commit dataset=auto hive" in caplog.text
    (failure,) = commit.not_published
    assert "reads as null" in failure.reason
    (shown,) = auto.inspect.publications()
    assert shown.is_stale
    assert str(shown) == f"hive {table} shows version 1 of 2"
    assert not auto.delete(auto.where("dt = ''")).not_published
    assert_in_step(spark, auto, table)


def test_publication_by_hand_follows_the_properties(spark, lake, days, table, monkeypatch):
    auto = create_hive(lake, days, table)
    auto.append(rows(1, "a"))
    monkeypatch.setenv("LAKEBED_METASTORE", "thrift://127.0.0.1:1")
    assert auto.append(rows(2, "a")).not_published
    assert auto.publish()
    monkeypatch.delenv("LAKEBED_METASTORE")

    assert not auto.publish()

    assert_in_step(spark, auto, table)

"""Retention of raw files of an archive: only what is old and was read goes, and all of it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from open_files import open_files
from raw_files import EVENTS, Raw, lines

import lakebed
from lakebed import FromFiles, Ingest, Pipeline, RetentionRule
from lakebed.archive import removal
from lakebed.errors import DatasetNotFoundError, InvalidInputError

PRESENT = (dt.datetime.now(dt.UTC) - dt.datetime(2013, 1, 1, tzinfo=dt.UTC)).days - 2


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    raw = Raw(tmp_path)
    raw.ingest = dataclasses.replace(
        raw.ingest, source=dataclasses.replace(raw.ingest.source, end="now")
    )
    return raw


def pipeline_of(raw: Raw, supersede: str | None = "path", **retention: Any) -> Pipeline:
    rule = RetentionRule(raw="30d", **retention)
    return Pipeline(ingest=raw.by(supersede), retention=rule)


def ids(raw: Raw) -> set[str]:
    """Return the ids of the files in the index, after a check that the storage has the same."""
    found = {record.id for record in raw.archive.index.records()}
    stored = {key.rpartition("/")[0] for key in (info.key for info in raw.archive.store.list())}
    assert {one for one in stored if not one.startswith("retractions")} == found
    return found


def facts_of(report: lakebed.PipelineReport) -> dict[str, Any]:
    return facts_of_step(report["retain"])


def facts_of_step(step: lakebed.StepReport) -> dict[str, Any]:
    facts = step.facts["raw"]
    assert isinstance(facts, dict)
    return facts


def test_old_files_that_were_read_go_and_the_dataset_stays_as_it_is(raw: Raw) -> None:
    old = [raw.push(day, lines(day, range(3))) for day in range(4)]
    young = raw.push(PRESENT, lines(PRESENT, range(3)))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")
    rows, version = raw.rows(), raw.events.version

    planned = pipeline.run(dry_run=True)
    assert ids(raw) == {young.id, *(record.id for record in old)}
    done = pipeline.run()

    plan, facts = facts_of(planned), facts_of(done)
    assert {**plan, "cutoff": None} == {**facts, "cutoff": None}
    assert (facts["file_count"], facts["kept"]) == (4, {})
    assert facts["size_bytes"] == sum(record.size_bytes for record in old)
    assert done["retain"].summary.startswith("4 raw files of ")
    assert ids(raw) == {young.id}
    assert raw.archive.reindex(dry_run=True).indexed_count == 1
    assert (raw.rows(), raw.events.version) == (rows, version)
    assert {file.file_id for file in raw.events.sources.list()} >= {record.id for record in old}
    again = pipeline.run()
    assert [step.status for step in again.steps] == ["nothing", "nothing"]
    assert again["retain"].summary == "no raw file is past the retention"
    assert raw.events.version == version


def test_a_pipeline_closes_the_archives_that_it_opens(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    pipeline = pipeline_of(raw)
    raw.archive.close()

    for is_dry_run in (True, False):
        report = pipeline.run(dry_run=is_dry_run)
        opened = [path for path in open_files() if path.startswith(raw.storage)]
        assert opened == []

    assert facts_of(report)["file_count"] == 1


def test_a_file_that_was_not_read_stays(raw: Raw) -> None:
    read = raw.push(0, lines(0, range(3)))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")
    unread = raw.push(1, lines(1, range(3)))

    facts = facts_of(pipeline.run(only="retain"))

    assert (facts["file_count"], facts["kept"]) == (1, {"not read": 1})
    assert ids(raw) == {unread.id}
    assert pipeline.run()["ingest"].facts["row_count"] == 3
    assert ids(raw) == set()
    assert len(raw.rows()) == 6
    assert read.id not in ids(raw)


def test_no_file_goes_before_the_first_is_read(raw: Raw) -> None:
    record = raw.push(1, lines(1, [], bad=range(9)))  # it is kept back

    report = pipeline_of(raw).run(fail=False)

    step = report["retain"]
    assert (step.status, step.summary) == ("skipped", "the dataset does not exist yet")
    assert (ids(raw), raw.rows()) == ({record.id}, [])

    # Nor once another file has created the dataset, while this one is kept back.
    raw.push(0, lines(0, range(3)))
    facts = facts_of(pipeline_of(raw).run(fail=False))
    assert (facts["file_count"], facts["kept"]) == (1, {"not read": 1})
    assert (ids(raw), len(raw.rows())) == ({record.id}, 3)


@pytest.mark.parametrize("supersede", ["path", "span"])
@pytest.mark.parametrize("is_read_between", [False, True])
def test_a_file_goes_together_with_those_that_it_has_replaced(
    raw: Raw, supersede: str, is_read_between: bool
) -> None:
    """If the newer one went alone, the next run would put the rows of the older one back."""
    pipeline = pipeline_of(raw, supersede)
    raw.push(0, lines(0, range(3)))
    if is_read_between:
        pipeline.run(only="ingest")
    raw.push(0, lines(0, range(5)))
    pipeline.run(only="ingest")
    rows = raw.rows()
    assert len(rows) == 5

    facts = facts_of(pipeline.run())

    assert (facts["file_count"], facts["kept"]) == (2, {})
    assert ids(raw) == set()
    assert pipeline.run()["ingest"].status == "nothing"
    assert raw.rows() == rows


@pytest.mark.parametrize("calls", range(1, 7))
def test_a_call_that_is_broken_off_never_brings_old_rows_back(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Each file is a portion of its own, and the process dies after some of the deletions."""

    class Died(BaseException):
        pass

    pipeline = pipeline_of(raw)
    for count in (1, 2, 3):
        raw.push(0, lines(0, range(count)))
        pipeline.run(only="ingest")
    rows = raw.rows()
    left = calls

    def dying(real: Any) -> Any:
        def delete(*given: Any) -> Any:
            nonlocal left
            if not left:
                raise Died
            left -= 1
            return real(*given)

        return delete

    with monkeypatch.context() as patch:
        patch.setattr(removal, "FILES_AT_ONCE", 1)
        for of in (type(raw.archive.store), type(raw.archive.index)):
            patch.setattr(of, "delete", dying(of.delete))
        with pytest.raises(Died):
            pipeline.run(only="retain")

    assert pipeline.run(only="ingest").is_ok
    assert raw.rows() == rows
    assert pipeline.run().is_ok
    assert ids(raw) == set()
    assert raw.rows() == rows


def test_files_of_one_identity_stay_together_while_one_of_them_is_unclear(raw: Raw) -> None:
    first = raw.push(0, lines(0, range(3)))
    pipeline = pipeline_of(raw, None)
    pipeline.run(only="ingest")
    other = raw.push(0, lines(0, range(5)))  # a correction, or a file of its own?

    report = pipeline.run(fail=False)

    assert report["ingest"].status == "attention"
    assert facts_of(report)["kept"] == {"beside one that stays": 1, "not read": 1}
    assert ids(raw) == {first.id, other.id}


def test_a_copy_goes_with_its_original(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    raw.push(0, lines(0, range(3)))
    pipeline = pipeline_of(raw, None)

    assert facts_of(pipeline.run())["file_count"] == 2
    assert ids(raw) == set()
    assert pipeline.run()["ingest"].status == "nothing"
    assert len(raw.rows()) == 3


def test_a_file_stays_while_a_younger_one_may_stand_for_the_same(raw: Raw) -> None:
    pipeline = pipeline_of(raw)
    old = raw.push(0, lines(0, range(3)))
    pipeline.run(only="ingest")
    late = raw.push(0, lines(0, range(4)))
    ends_now = dataclasses.replace(
        late,
        metadata=type(late.metadata)(
            {**late.metadata, "end": late.metadata.start + PRESENT * 86_400_000}, is_stored=True
        ),
    )
    raw.archive.index.put([ends_now])

    assert facts_of(pipeline.run())["kept"] == {"beside one that stays": 1}
    assert ids(raw) == {old.id, late.id}
    assert len(raw.rows()) == 4


def test_held_and_retracted_files_stay(raw: Raw) -> None:
    held, retracted, gone = (raw.push(day, lines(day, [day])) for day in range(3))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")
    pipeline.ingest.hold(held.id, reason="torn")
    raw.archive.retract(retracted.id, reason="torn")

    facts = facts_of(pipeline.run())

    assert (facts["file_count"], facts["kept"]) == (1, {"held or retracted": 2})
    assert ids(raw) == {held.id, retracted.id}
    assert gone.id not in ids(raw)


def test_a_file_that_a_rollback_has_taken_out_stays(raw: Raw) -> None:
    pipeline = pipeline_of(raw)
    raw.push(0, lines(0, range(3)))
    pipeline.run(only="ingest")
    later = raw.push(1, lines(1, range(3)))
    pipeline.run(only="ingest")
    raw.events.rollback(version=1)

    facts = facts_of(pipeline.run(only="retain"))

    assert (facts["file_count"], facts["kept"]) == (1, {"not read": 1})
    assert ids(raw) == {later.id}


def test_a_rollback_meanwhile_keeps_its_files(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_of(raw)
    raw.push(0, lines(0, range(3)))
    pipeline.run(only="ingest")
    later = raw.push(1, lines(1, range(3)))
    pipeline.run(only="ingest")
    real, calls = removal.portions, 0

    def portions(records: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:  # after the files were found, before the first goes
            raw.events.rollback(version=1)
        return real(records)

    monkeypatch.setattr("lakebed.pipeline.raw_retention.portions", portions)
    monkeypatch.setattr("lakebed.upkeep.upkeep_steps.time.sleep", lambda _: None)

    step = pipeline.run(only="retain")["retain"]

    assert (step.status, step.attempts) == ("done", 2)
    assert ids(raw) == {later.id}


def test_lines_that_wait_for_another_schema_keep_their_file(raw: Raw) -> None:
    record = raw.push(0, lines(0, range(3)) + b'{"day": 0, "kind": "a", "n": 9, "more": 1}\n')
    pipeline = Pipeline(ingest=raw.by("path", max_rejects=0.9), retention=RetentionRule(raw="30d"))

    facts = facts_of(pipeline.run())

    assert (facts["file_count"], facts["kept"]) == (0, {"read in part": 1})
    raw.events.evolve(lambda old: old.add_field("more", "long"))
    assert pipeline.run()["ingest"].facts["row_count"] == 4
    assert record.id not in ids(raw)


def test_all_named_datasets_must_have_read_a_file(raw: Raw) -> None:
    first = raw.push(0, lines(0, range(3)))
    other = dataclasses.replace(
        raw.by("path"), name="other", into=f"{raw.directory}/lake/other", create=EVENTS
    )
    pipeline = pipeline_of(raw, raw_read_by="other")
    with pytest.raises(DatasetNotFoundError, match="other"):
        pipeline.run()
    assert ids(raw) == {first.id}
    other.run()
    second = raw.push(1, lines(1, range(3)))

    facts = facts_of(pipeline.run())

    assert (facts["file_count"], facts["kept"]) == (1, {"not read by all datasets": 1})
    assert ids(raw) == {second.id}
    other.run()
    assert facts_of(pipeline.run())["file_count"] == 1


def test_files_of_other_whats_and_places_stay(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    elsewhere = raw.push(0, lines(0, range(3)), where="elsewhere")
    source = dataclasses.replace(raw.ingest.source, where="box")
    ingest = dataclasses.replace(raw.ingest, source=source)

    Pipeline(ingest=ingest, retention=RetentionRule(raw="30d")).run()

    assert ids(raw) == {elsewhere.id}


def test_a_window_of_the_ingest_does_not_keep_old_files(raw: Raw) -> None:
    """What has left the window was read before; what was never in it was not."""
    raw.push(0, lines(0, range(3)))
    pipeline_of(raw).run(only="ingest")
    unread = raw.push(1, lines(1, range(3)))
    source = dataclasses.replace(raw.ingest.source, start="-7d")
    ingest = dataclasses.replace(raw.ingest, source=source)

    report = Pipeline(ingest=ingest, retention=RetentionRule(raw="30d")).run()

    assert facts_of(report)["file_count"] == 1
    assert ids(raw) == {unread.id}


def test_records_of_other_storages_stay(raw: Raw, tmp_path: Path) -> None:
    """An index may serve several."""
    record = raw.push(0, lines(0, range(3)))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")
    moved = dataclasses.replace(record, url=f"file://{tmp_path}/other/{record.id}/data")

    assert removal.is_in(raw.archive, record)
    assert not removal.is_in(raw.archive, moved)


def test_two_at_once_delete_each_file(raw: Raw) -> None:
    for day in range(20):
        raw.push(day, lines(day, [1]))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")

    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda _: pipeline.run(only="retain", fail=False), range(3)))

    assert [report.exit_code for report in reports] == [0] * 3
    assert ids(raw) == set()


def test_rows_and_raw_files_in_one_step(raw: Raw) -> None:
    raw.push(0, lines(0, range(4)))

    step = pipeline_of(raw, delete_where="n < 3").run()["retain"]

    assert step.facts["row_count"] == 3
    assert step.summary.startswith("3 rows in ")
    assert ", 1 raw file of " in step.summary
    assert [n for _, n in raw.rows()] == [3]


def test_rows_by_properties_and_raw_files_by_the_pipeline(raw: Raw) -> None:
    raw.push(0, lines(0, range(4)))
    pipeline = pipeline_of(raw)
    pipeline.run(only="ingest")
    named = {"retention.delete_where": "n < 3"}
    raw.events.evolve(lambda old: dataclasses.replace(old, properties=named))

    step = pipeline.run()["retain"]

    assert (step.facts["row_count"], facts_of_step(step)["file_count"]) == (3, 1)
    assert ids(raw) == set()


def test_files_of_a_folder_have_no_retention(tmp_path: Path) -> None:
    ingest = Ingest(
        name="events",
        into=f"{tmp_path}/lake/events",
        source=FromFiles(paths="in"),
        create=EVENTS,
    )

    with pytest.raises(InvalidInputError, match="for files of an archive"):
        Pipeline(ingest=ingest, retention=RetentionRule(raw="30d"))


def toml(raw: Raw, retention: str, source: str = "") -> str:
    return (
        f'[source]\nstorage = "{raw.storage}"\nwhat = "events"\nformat = "json"\n{source}'
        f'[dataset]\ninto = "{raw.directory}/lake/events"\n'
        f'[ingest]\nstart = "2013-01-01"\nend = "now"\nsupersede = "path"\n'
        f"[retention]\n{retention}"
    )


def test_the_declaration(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    raw.ingest.run()
    pipeline = Pipeline.from_toml(toml(raw, 'raw = "730d"\nraw_read_by = ["events"]\n'))

    assert pipeline.retention == RetentionRule(raw="730d", raw_read_by=("events",))
    assert facts_of(pipeline.run())["file_count"] == 1
    assert ids(raw) == set()


@pytest.mark.parametrize(
    ("retention", "message"),
    [
        ('raw = "2y"\n', r"line 12, \[retention\] raw: '2y' is not a valid age"),
        ('raw = "0d"\n', r"line 12, \[retention\] raw: raw is 0"),
        ('raw_read_by = "other"\nkeep = "3d"\n', "raw_read_by, but no raw"),
        ('raw_red_by = "other"\nraw = "3d"\n', "Did you mean 'raw_read_by'"),
    ],
)
def test_mistakes_in_the_declaration(raw: Raw, retention: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        Pipeline.from_toml(toml(raw, retention))
    assert caught.value.hint


def test_raw_is_refused_for_a_folder(raw: Raw) -> None:
    text = '[source]\npaths = "in"\n[dataset]\ninto = "lake/events"\n[retention]\nraw = "30d"\n'

    with pytest.raises(
        InvalidInputError, match=r"line 6, \[retention\] raw: it is for files of an"
    ):
        Pipeline.from_toml(text)

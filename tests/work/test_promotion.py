"""Promotion: what a dimension allows from now on moves out of OTHER, and nothing else changes."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dimension_lake import (
    PHASES,
    SCHEMA,
    by_partition,
    descriptor,
    make,
    new_store,
    row,
    rows_of_runs,
    three,
)
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from inside import store_of
from upkeep_lake import DyingStore, Interfering, Killed, data_keys
from writing_calls import writing_calls

import lakebed
from lakebed import by
from lakebed.arrow.kernel import KernelWriter
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
    StorageError,
)
from lakebed.state.metadata_provider import MetadataProvider
from lakebed.store.posix import PosixStore
from lakebed.testing import FailingStore

QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
CHANNELS = ["beta", "esr", "nightly", "OTHER", "~OTHER", "", "a/b", None]


ESR = {"channel": ["beta", "esr"]}


RULES_OF_CHANNEL = [["beta"], ["beta", "esr"], ["beta", "esr", "OTHER", "a/b", ""], "*"]
RULES_OF_N = [
    {"min": 0, "max": 2},
    {"min": 0, "max": 5},
    {"min": -3, "max": 5},
    {"min": -3},
    {},
]
batches = st.lists(
    st.tuples(
        st.sampled_from([None, "daily", "monthly"]),
        st.lists(
            st.tuples(st.sampled_from(CHANNELS), st.none() | st.integers(-6, 8)),
            min_size=1,
            max_size=6,
        ),
    ),
    max_size=6,
)


@examples(0.2)
@given(
    batches,
    st.lists(st.integers(0, 3), min_size=2, max_size=3).map(sorted),
    st.lists(st.integers(0, 4), min_size=2, max_size=3).map(sorted),
)
def test_rows_lie_where_a_dataset_written_with_the_new_rules_has_them(
    given_batches: list, channels: list[int], numbers: list[int]
) -> None:
    length = min(len(channels), len(numbers))
    rules = [
        {"channel": RULES_OF_CHANNEL[channels[i]], "n": RULES_OF_N[numbers[i]]}
        for i in range(length)
    ]
    dataset = make(**rules[0])
    written: list[dict[str, Any]] = []
    for run, some in given_batches:
        rows = [row(channel, len(written) + i, n) for i, (channel, n) in enumerate(some)]
        dataset.append(rows, run=run)
        written += rows
    of_runs, before, version = rows_of_runs(dataset), by_partition(dataset), dataset.version

    for rule in rules[1:]:
        planned = dataset.dimensions.promote(rule, dry_run=True)
        report = dataset.dimensions.promote(rule)
        assert report.moves == planned.moves

    anew = make(**rules[-1])
    if written:
        anew.append(written)
    assert by_partition(dataset) == by_partition(anew)
    assert rows_of_runs(dataset) == of_runs
    assert dataset.descriptor == anew.descriptor
    assert by_partition(dataset.at(version=version)) == before
    for channel in CHANNELS:
        view = dataset.kite.with_("channel", channel) if channel is not None else dataset
        same = anew.kite.with_("channel", channel) if channel is not None else anew
        assert view.count() == same.count()


def test_only_files_of_other_with_such_rows_are_written_anew_in_one_commit() -> None:
    dataset = three()
    dataset.append([row("own", 9)])
    kept = {file.key for file in dataset.files() if "OTHER" not in file.partition}
    untouched = dataset.files()[-1].key

    report = dataset.dimensions.promote(ESR)

    (move,) = report.moves
    assert (move.source, move.target, move.row_count) == (
        "channel_dimension=OTHER",
        "channel_dimension=esr",
        3,
    )
    assert (report.rewritten_file_count, report.dimensions) == (3, ("channel_dimension",))
    assert report.commit is not None
    assert report.commit.operation == "promote"
    assert dataset.version == report.commit.version == 5
    assert report.commit.files_removed == tuple(
        key for key in report.commit.files_removed if "OTHER" in key
    )
    assert kept | {untouched} <= {file.key for file in dataset.files()}
    assert report.added_file_count == 2
    assert dataset.count() == 13


def test_files_whose_facts_exclude_the_values_are_not_read() -> None:
    dataset = make()
    dataset.append([row("aaa"), row("aab")])
    dataset.append([row("esr")])
    dataset.append([row("zzz")])

    report = dataset.dimensions.promote(ESR)

    assert (report.read_file_count, report.rewritten_file_count) == (1, 1)


def test_files_that_an_index_excludes_are_not_read() -> None:
    dataset = lakebed.Repository(new_store()).create(
        "d",
        lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.dimension("channel", ["beta"])], index=["channel"]
        ),
    )
    for _ in range(3):
        dataset.append([row("aaa"), row("zzz")])
    dataset.append([row("aaa"), row("esr"), row("zzz")])

    report = dataset.dimensions.promote(ESR)

    assert (report.read_file_count, report.rewritten_file_count) == (1, 1)
    assert [one["channel"] for one in dataset.where("channel = 'esr'").kite.reader()] == ["esr"]


def test_promotion_without_rows_changes_the_dimension_alone() -> None:
    dataset = make()
    dataset.append([row("own")])
    keys = {file.key for file in dataset.files()}

    report = dataset.dimensions.promote(ESR)

    assert (report.moves, report.rewritten_file_count, dataset.version) == ((), 0, 2)
    assert {file.key for file in dataset.files()} == keys
    dataset.append([row("esr")])
    assert [one.path for one in dataset.inspect.partitions()] == [
        "channel_dimension=OTHER",
        "channel_dimension=esr",
    ]


def test_dry_run_and_a_repetition_leave_everything_as_it_is() -> None:
    dataset = three()
    store = store_of(dataset)
    keys = {info.key for info in store.list("")}

    planned = dataset.dimensions.promote(ESR, dry_run=True)

    assert (planned.row_count, planned.commit, planned.is_dry_run) == (3, None, True)
    assert {info.key for info in store.list("")} == keys
    dataset.dimensions.promote(ESR)
    again = dataset.dimensions.promote(ESR)
    assert (again.commit, again.dimensions) == (None, ())
    assert dataset.version == 4


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["beta", "esr"], ["esr"]),
        ("*", ["beta"]),
        ({"regex": "a.*"}, {"regex": "a.*|b"}),
        (["beta"], {"min": "c"}),
        ({"min": "a", "max": "m"}, {"min": "b", "max": "z"}),
        ({"min": "a"}, ["a", "b"]),
    ],
)
def test_loss_of_values_is_refused(before: Any, after: Any) -> None:
    dataset = make(channel=before)

    with pytest.raises(PartitionSpecError, match="would lose values"):
        dataset.dimensions.promote({"channel": after})

    assert dataset.version == 0


def test_cap_can_grow_and_not_shrink() -> None:
    capped = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("channel", "*", cap=2)]
    )
    dataset = lakebed.Repository(new_store()).create("d", capped)
    dataset.append([row(one) for one in "abcddee"])
    assert {one.path[-1] for one in dataset.inspect.partitions()} == {"a", "b", "R"}

    def schema(cap: int) -> lakebed.DimensionSchema:
        rule = {"field_name": "channel", "allowed_values": "*", "cap": cap}
        return lakebed.DimensionSchema.from_document({"version": 1, "dimensions": [rule]})

    with pytest.raises(PartitionSpecError, match="would lose values"):
        dataset.dimensions.promote(schema(1))
    report = dataset.dimensions.promote(schema(4))

    # The most frequent values get the room that is left.
    assert [move.target[-1] for move in report.moves] == ["d", "e"]
    assert {one.path[-1]: one.row_count for one in dataset.inspect.partitions()} == {
        "a": 1,
        "b": 1,
        "d": 2,
        "e": 2,
        "R": 1,
    }
    assert dataset.dimensions.promote({"channel": "*"}).commit is None


def test_document_names_fields_and_levels_and_fields_in_records() -> None:
    schema = pa.schema(
        [
            ("app", pa.struct([("version", pa.string())])),
            ("appName", pa.string()),
            ("n", pa.int64()),
        ]
    )
    functions = [by.dimension("app.version", ["1"]), by.dimension("appName", ["Firefox"])]
    dataset = lakebed.Repository(new_store()).create(
        "d", lakebed.DatasetDescriptor(schema=schema, partition_by=functions)
    )
    dataset.append([{"app": {"version": "2"}, "appName": "Fennec", "n": 1}, {"n": 2}])
    text = """{"version": 1, "dimensions": [
        {"field_name": "appName", "allowed_values": ["Firefox", "Fennec"]},
        {"field_name": "version", "allowed_values": ["1", "2"]}]}"""

    report = dataset.dimensions.promote(lakebed.DimensionSchema.from_json(text))

    assert [move.target for move in report.moves] == [
        "app_version_dimension=2/appName_dimension=Fennec"
    ]
    assert dataset.where("app.version = '2' AND appName = 'Fennec'").count() == 1
    with pytest.raises(InvalidInputError, match="no dimension of field 'appname'"):
        dataset.dimensions.promote({"appname": ["Firefox"]})
    with pytest.raises(InvalidInputError, match="is not a dimension schema"):
        dataset.dimensions.promote(["Firefox"])  # type: ignore[arg-type]  # what a user may try


@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.bool_(), pa.int32()])
def test_every_kind_of_field_is_promoted(kind: pa.DataType) -> None:
    first, second, third = {
        "string": ("a", "b", "c"),
        "date32[day]": tuple(dt.date(2020, 1, day) for day in (1, 2, 3)),
        "bool": (True, False, None),
        "int32": (1, 2, 3),
    }[str(kind)]
    dataset = lakebed.Repository(new_store()).create(
        "d",
        lakebed.DatasetDescriptor(
            schema=pa.schema([("v", kind), ("n", pa.int64())]),
            partition_by=[by.dimension("v", [first])],
        ),
    )
    dataset.append([{"v": one, "n": 1} for one in (first, second, third)])

    dataset.dimensions.promote({"v": [first, second]})

    assert len(dataset.inspect.partitions()) == 3
    assert len(dataset.kite.with_("v", second).plan().files) == 1
    assert dataset.kite.with_("v", second).count() == 1


def test_texts_that_read_as_numbers_are_promoted_by_their_range() -> None:
    narrow = {"min": 448, "max": 500, "type": "long"}
    dataset = make(channel=narrow)
    dataset.append([row(one) for one in ("448", "600", "9", "x")])

    dataset.dimensions.promote({"channel": narrow | {"max": 700}})

    assert {one.path.partition("=")[2] for one in dataset.inspect.partitions()} == {
        "448",
        "600",
        "OTHER",
    }


def test_files_of_older_schemas_are_promoted_under_the_current_one() -> None:
    dataset = make()
    dataset.append([row("esr", 1), row("own", 2)])
    wider = lakebed.DatasetDescriptor(
        schema=SCHEMA.append(pa.field("more", pa.int32())),
        partition_by=dataset.descriptor.partition_by,
    )
    dataset.evolve(wider, base=dataset.version)
    dataset.append([{**row("esr", 3), "more": 5}])

    dataset.dimensions.promote(ESR)

    found = dataset.where("channel = 'esr'").arrow(["id", "more"]).to_pylist()
    assert sorted(map(str, found)) == ["{'id': 1, 'more': None}", "{'id': 3, 'more': 5}"]
    assert dataset.schema.names[-1] == "more"


@pytest.mark.parametrize("format_", ["avro", "submissions"])
def test_every_format_is_promoted(format_: str) -> None:
    schema = pa.schema([("uuid", pa.string()), ("document", pa.string()), ("channel", pa.string())])
    dataset = lakebed.Repository(new_store()).create(
        "d",
        lakebed.DatasetDescriptor(
            schema=schema, format=format_, partition_by=[by.dimension("channel", ["beta"])]
        ),
    )
    dataset.append(
        [
            {"uuid": f"u{n}", "document": f'{{"channel": "{one}"}}', "channel": one}
            for n, one in enumerate(["beta", "esr", "own"])
        ]
    )

    dataset.dimensions.promote(ESR)

    assert dataset.where("channel_dimension = 'esr'").arrow(["uuid"]).to_pylist() == [
        {"uuid": "u1"}
    ]
    assert dataset.count() == 3


def test_update_still_refuses_it_and_says_promote() -> None:
    dataset = three()

    with pytest.raises(PartitionSpecError) as caught:
        dataset.evolve(descriptor(("beta", "esr")), base=dataset.version)

    assert "promote" in (caught.value.hint or "")


OTHERS: dict[str, Callable[[lakebed.Dataset], Any]] = {
    "append": lambda dataset: dataset.append([row(one, 9) for one in ("esr", "own", "beta")]),
    "overwrite": lambda dataset: dataset.overwrite([row("own", 9), row("esr", 9)]),
    "delete": lambda dataset: dataset.where("channel = 'esr' AND id = 1").delete(),
    "compact": lambda dataset: dataset.compact(),
    "rerun": lambda dataset: dataset.rerun([row("esr", 9)], run="daily", replace_all=True),
}


def expected_after(operation: str) -> collections.Counter[str]:
    kept = [row(one, number) for number in range(3) for one in ("beta", "esr", "own", None)]
    match operation:
        case "append":
            kept += [row(one, 9) for one in ("esr", "own", "beta")]
        case "overwrite":
            kept = [one for one in kept if one["channel"] in ("beta", None)]
            kept += [row("own", 9), row("esr", 9)]
        case "delete":
            kept.remove(row("esr", 1))
        case "rerun":
            kept += [row("esr", 9)]
    return collections.Counter(map(str, kept))


@pytest.mark.thorough
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("operation", OTHERS)
def test_others_at_any_moment_of_a_promotion_leave_no_row_in_a_wrong_place(
    phase: str, operation: str
) -> None:
    dataset = three()
    store = Interfering(store_of(dataset), PHASES[phase], lambda: OTHERS[operation](dataset))

    report = lakebed.Repository(store).open("d").dimensions.promote(ESR)

    assert store.acted
    assert report.commit is not None
    rows = collections.Counter(map(str, dataset.arrow().to_pylist()))
    assert rows == expected_after(operation)
    assert (
        dataset.where("channel_dimension = 'OTHER' AND n = 0").kite.with_("channel", "own").count()
    )
    anew = make(channel=("beta", "esr"))
    anew.append(dataset.arrow())
    assert by_partition(dataset) == by_partition(anew)
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_keys(store_of(dataset)) == known


@pytest.mark.thorough
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("operation", OTHERS)
def test_promotion_at_any_moment_of_others_leaves_no_row_in_a_wrong_place(
    phase: str, operation: str
) -> None:
    dataset = three()
    store = Interfering(store_of(dataset), PHASES[phase], lambda: dataset.dimensions.promote(ESR))
    other = lakebed.Repository(store).open("d")

    try:
        OTHERS[operation](other)
        is_refused = False
    except CommitConflictError:
        is_refused = True
        OTHERS[operation](dataset)  # as its user does then

    assert store.acted
    rows = collections.Counter(map(str, dataset.arrow().to_pylist()))
    if operation == "overwrite":
        # By the new rules, the esr of before has a partition of its own, which the data touches.
        assert rows == expected_after("overwrite")
    else:
        assert rows == expected_after(operation)
    assert is_refused == (operation in ("append", "overwrite", "delete", "rerun")) or (
        phase == "reserve" or operation == "compact"
    )
    anew = make(channel=("beta", "esr"))
    anew.append(dataset.arrow())
    assert by_partition(dataset) == by_partition(anew)


def test_append_of_the_old_rules_that_did_not_use_other_commits() -> None:
    dataset = three()
    store = Interfering(
        store_of(dataset), PHASES["attempt"], lambda: dataset.dimensions.promote(ESR)
    )

    lakebed.Repository(store).open("d").append([row("beta", 7), row(None, 7)])

    assert dataset.where("id = 7").count() == 2


def test_staged_batch_of_the_old_rules_is_refused() -> None:
    dataset = three()
    waiting = dataset.staged.add([row("esr", 7)])
    dataset.dimensions.promote(ESR)

    with pytest.raises(CommitConflictError, match="may have partitions of their own"):
        waiting.commit()


def test_rollback_behind_a_promotion_brings_no_row_to_a_wrong_place() -> None:
    dataset = three()
    dataset.dimensions.promote(ESR)

    with pytest.raises(InvalidInputError, match="since moved to partitions of their own"):
        dataset.rollback(version=3)

    dataset.append([row("esr", 5)])
    dataset.rollback(version=4)
    assert dataset.where("channel = 'esr'").count() == 3


def test_two_promotions_at_once_give_what_both_allow_or_refuse_one() -> None:
    dataset = three()
    wider = {"channel": ["beta", "esr", "own"]}
    store = Interfering(
        store_of(dataset), PHASES["attempt"], lambda: dataset.dimensions.promote(wider)
    )

    with pytest.raises(PartitionSpecError, match="would lose values"):
        lakebed.Repository(store).open("d").dimensions.promote(ESR)

    assert dataset.where("channel_dimension = 'own'").count() == 3
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_keys(store_of(dataset)) == known


def test_appends_do_not_keep_a_promotion_from_ending() -> None:
    dataset = three()
    stop = threading.Event()
    refused = appended = 0

    def append() -> None:
        nonlocal refused, appended
        other = lakebed.Repository(store_of(dataset)).open("d")
        while not stop.is_set():
            try:
                other.append([row("esr", 50), row("own", 50)])
                appended += 1
            except CommitConflictError:
                refused += 1
            stop.wait(0.1)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        report = dataset.dimensions.promote(ESR)
    finally:
        stop.set()
        thread.join()

    assert report.commit is not None
    assert dataset.where("channel = 'esr'").count() == 3 + appended
    assert dataset.where("channel_dimension = 'esr'").count() == 3 + appended
    assert refused <= 2


def test_rows_that_are_not_what_they_were_stop_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = three()
    keys, whole = data_keys(store_of(dataset)), KernelWriter.write_to

    def altered(self: Any, partition: str, batch: pa.RecordBatch, source: Any = 0) -> None:
        whole(self, partition, batch.slice(1), source)

    monkeypatch.setattr(KernelWriter, "write_to", altered)
    with pytest.raises(CorruptMetadataError, match="rows instead of"):
        dataset.dimensions.promote(ESR)

    assert dataset.version == 3
    assert data_keys(store_of(dataset)) == keys


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_it_happened_or_not_and_can_be_done_again(after: bool) -> None:
    outcomes = []
    for nth in itertools.count(1):
        dataset = three()
        dying = DyingStore(store_of(dataset), nth=nth, after=after)
        with contextlib.suppress(Killed):
            lakebed.Repository(dying).open("d").dimensions.promote(ESR)
        rows = collections.Counter(map(str, dataset.arrow().to_pylist()))
        assert rows == expected_after("nothing")
        moved = dataset.where("channel_dimension = 'esr'").count()
        assert moved == (3 if dataset.version == 4 else 0)
        outcomes.append(moved)
        dataset.dimensions.promote(ESR)
        assert dataset.where("channel_dimension = 'esr'").count() == 3
        if not dying.died_at:
            break

    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 3}


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [False, True])
def test_on_a_failing_store_it_happens_once_or_not_at_all(
    subtests: pytest.Subtests, landed: bool
) -> None:
    for name, nth in writing_calls(
        store_of(three()), lambda lake: lake.open("d").dimensions.promote(ESR)
    ):
        with subtests.test(call=name, nth=nth):
            promote_on_a_failing_store(name, nth, landed=landed)


def promote_on_a_failing_store(name: Any, nth: int, *, landed: bool) -> None:
    dataset = three()
    store = store_of(dataset)
    lost = StorageError("The answer was lost.", retryable=True)
    failing = FailingStore(store, fail_on=name, nth=nth, landed=landed, error=lost)
    failure: LakebedError | None = None

    try:
        lakebed.Repository(failing).open("d").with_options(commit=QUICK).dimensions.promote(ESR)
    except LakebedError as exc:
        failure = exc

    assert failing.has_failed
    assert dataset.version == (3 if failure else 4)
    assert dataset.where("channel_dimension = 'esr'").count() == (0 if failure else 3)
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_keys(store) == known


def test_reader_sees_each_row_once_at_every_moment() -> None:
    dataset = three()
    expected, stop = expected_after("nothing"), threading.Event()
    wrong: list[object] = []

    def read() -> None:
        reader = lakebed.Repository(store_of(dataset)).open("d")
        while not stop.is_set():
            found = collections.Counter(map(str, reader.arrow().to_pylist()))
            if found != expected:
                wrong.append(found)
            if reader.where("channel = 'esr'").count() != 3:
                wrong.append("esr")

    thread = threading.Thread(target=read)
    thread.start()
    for more in (["beta", "esr"], ["beta", "esr", "own"], "*"):
        dataset.dimensions.promote({"channel": more})
    stop.set()
    thread.join()

    assert wrong == []


def test_provider_is_told() -> None:
    told: list[lakebed.DatasetDescriptor] = []

    class Provider(MetadataProvider):
        def save(self, name: str, descriptor: lakebed.DatasetDescriptor) -> None:
            told.append(descriptor)

        def load(self, name: str) -> lakebed.DatasetDescriptor:
            return told[-1]

        def delete(self, name: str) -> bool:
            return False

        def list(self) -> tuple[str, ...]:
            return ()

    repository = lakebed.Repository(new_store(), metadata=Provider())
    dataset = repository.create("d", descriptor())
    dataset.dimensions.promote(ESR)

    assert told[-1] == dataset.descriptor == descriptor(("beta", "esr"))


@pytest.mark.spark
def test_spark_does_the_same(spark: Any, tmp_path: Path) -> None:
    dataset = three(PosixStore(tmp_path / "lake", durable=False))
    dataset.append([row("esr", 9), row("nightly", 9)], run="daily")
    of_runs = rows_of_runs(dataset)
    planned = dataset.dimensions.promote(ESR, spark, dry_run=True)

    report = dataset.dimensions.promote(ESR, spark)

    assert report.moves == planned.moves
    assert report.row_count == 4
    anew = make(channel=("beta", "esr"))
    anew.append(dataset.arrow())
    assert by_partition(dataset) == by_partition(anew)
    assert rows_of_runs(dataset) == of_runs
    assert dataset.where("channel = 'esr'").spark(spark).count() == 4

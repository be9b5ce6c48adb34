"""Dimensions that narrow, come, go and change their order: rows move as one commit."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from typing import Any

import pytest
from dimension_lake import (
    PHASES,
    SCHEMA,
    by_partition,
    make,
    new_store,
    row,
    rows_of_runs,
    three,
)
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from inside import state_of, store_of
from upkeep_lake import DyingStore, Interfering, Killed, data_keys

import lakebed
from lakebed import DimensionSchema, by
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
)
from lakebed.model.allowed import read_allowed
from lakebed.model.dimensions import DimensionRule
from lakebed.model.predicate import TRUE
from lakebed.state.scope import WholeView
from lakebed.work.rollback import find_restoration

NARROW = {"channel": ["nightly"]}


def schema_of(**allowed: Any) -> DimensionSchema:
    rules = [
        DimensionRule(field_name=name, allowed=read_allowed(rule, name))
        for name, rule in allowed.items()
    ]
    return DimensionSchema(dimensions=tuple(rules))


def written_by(descriptor: lakebed.DatasetDescriptor, rows: Any) -> lakebed.Dataset:
    dataset = lakebed.Repository(new_store()).create("d", descriptor)
    dataset.append(rows)
    return dataset


def assert_lies_as_written_by_its_descriptor(dataset: lakebed.Dataset) -> None:
    assert by_partition(dataset) == by_partition(written_by(dataset.descriptor, dataset.arrow()))
    store = store_of(dataset)
    assert lakebed.Repository(store).open("d").check(deep=True).is_ok


def test_rows_of_a_removed_value_move_into_other_as_one_commit() -> None:
    dataset = three()
    before = collections.Counter(map(str, dataset.arrow().to_pylist()))

    report = dataset.dimensions.promote({"channel": ["esr"]}, reroute=True)

    assert report.commit.version == 4
    assert (report.commit.operation, report.dimensions) == ("promote", ("channel_dimension",))
    assert {(move.source, move.target): move.row_count for move in report.moves} == {
        ("channel_dimension=beta", "channel_dimension=OTHER"): 3,
        ("channel_dimension=OTHER", "channel_dimension=esr"): 3,
    }
    assert collections.Counter(map(str, dataset.arrow().to_pylist())) == before
    assert_lies_as_written_by_its_descriptor(dataset)
    assert dataset.where("channel = 'beta'").count() == 3
    old = dataset.at(version=3)
    assert collections.Counter(map(str, old.arrow().to_pylist())) == before
    assert old.where("channel = 'beta'").count() == 3


def test_without_the_choice_the_loss_of_values_is_refused_and_names_it() -> None:
    dataset = three()

    with pytest.raises(PartitionSpecError, match="would lose values") as caught:
        dataset.dimensions.promote({"channel": ["esr"]})

    assert "--reroute" in str(caught.value.hint)
    assert dataset.version == 3


def test_growth_with_the_choice_is_an_ordinary_promotion() -> None:
    dataset = three()

    report = dataset.dimensions.promote({"channel": ["beta", "esr"]}, reroute=True)

    assert report.rewritten_file_count == 3
    assert report.read_file_count == 3  # of OTHER alone
    assert dataset.dimensions.promote({"channel": ["beta", "esr"]}, reroute=True).commit is None


@pytest.mark.parametrize("phase", PHASES)
def test_growth_with_the_choice_goes_on_where_another_rerouting_narrows_meanwhile(
    phase: str,
) -> None:
    dataset = three()
    inner = store_of(dataset)
    store = Interfering(
        inner,
        PHASES[phase],
        lambda: dataset.dimensions.promote({"channel": ["nightly"]}, reroute=True),
    )

    lakebed.Repository(store).open("d").dimensions.promote(
        {"channel": ["beta", "esr"]}, reroute=True
    )

    dataset = lakebed.Repository(inner).open("d")
    assert store.acted
    (function,) = dataset.descriptor.partition_by
    assert function.allowed == read_allowed(["beta", "esr"], "channel")
    assert_lies_as_written_by_its_descriptor(dataset)


def test_growth_of_a_cap_with_the_choice_is_an_ordinary_promotion() -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("channel", cap=1)]
    )
    dataset = written_by(descriptor, [row(channel, 1) for channel in ("beta", "beta", "esr")])
    wider = DimensionSchema(
        dimensions=(
            DimensionRule(field_name="channel", allowed=read_allowed("*", "channel"), cap=2),
        )
    )

    report = dataset.dimensions.promote(wider, reroute=True)

    assert [(move.target, move.row_count) for move in report.moves] == [
        ("channel_dimension=esr", 1)
    ]
    assert dataset.dimensions.promote(wider, reroute=True).commit is None


def test_a_table_that_a_rerouting_could_not_be_published_to_is_named() -> None:
    dataset = three()
    properties = {"publish.hive": "true", "publish.hive.table": "nowhere.d"}
    dataset.evolve(lambda old: dataclasses.replace(old, properties=properties))

    report = dataset.dimensions.promote({"channel": ["esr"]}, reroute=True)

    assert [failed.dataset for failed in report.commit.not_published] == [dataset.name]


RULES = [
    schema_of(channel="*"),
    schema_of(channel=["beta"]),
    schema_of(channel=[]),
    schema_of(n={"min": 0, "max": 3}, channel=["esr", "a/b"]),
    schema_of(channel=["esr", "a/b", "OTHER"], n={"min": 0, "max": 3}),
    schema_of(n=[1, 2]),
    schema_of(id="*", channel="*", n="*"),
]
rows_of_all_kinds = st.lists(
    st.builds(
        row,
        st.sampled_from(["beta", "esr", "OTHER", "~OTHER", "", "a/b", None]),
        st.integers(0, 3),
        st.integers(-2, 5),
    ),
    max_size=8,
)


@examples(0.2)
@given(
    st.lists(rows_of_all_kinds, min_size=1, max_size=3),
    st.lists(st.sampled_from(RULES), min_size=1, max_size=3),
    st.sampled_from(["", "hash(id, 2)", "id"]),
)
def test_any_dimensions_become_any_others_and_every_row_lies_as_if_written_by_them(
    batches: list[list[dict[str, Any]]], rules: list[DimensionSchema], other: str
) -> None:
    partition_by = [by.dimension("channel", ["beta"]), *([other] if other else [])]
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=partition_by)
    dataset = lakebed.Repository(new_store()).create("d", descriptor)
    for number, rows in enumerate(batches):
        dataset.append(rows, run=f"run-{number}")
    before = collections.Counter(map(str, dataset.arrow().to_pylist()))
    of_runs = rows_of_runs(dataset)

    for rule in rules:
        if other == "id" and "id" in rule.names:
            continue
        dataset.dimensions.promote(rule, reroute=True)
        names = [
            one.source for one in dataset.descriptor.partition_by if one.type_name == "dimension"
        ]
        assert names == list(rule.names)
        assert_lies_as_written_by_its_descriptor(dataset)

    assert collections.Counter(map(str, dataset.arrow().to_pylist())) == before
    assert {run: n for run, n in rows_of_runs(dataset).items() if n} == {
        run: n for run, n in of_runs.items() if n
    }
    for version in range(1, dataset.version + 1):
        assert dataset.at(version=version).where("channel = 'beta' OR n > 2").arrow() is not None


def test_other_dimensions_take_the_place_of_the_old_ones_and_old_versions_stay() -> None:
    dataset = three()
    old = by_partition(dataset)

    dry = dataset.dimensions.promote(schema_of(n="*", channel=["esr"]), reroute=True, dry_run=True)
    assert dataset.version == 3
    report = dataset.dimensions.promote(schema_of(n="*", channel=["esr"]), reroute=True)

    assert dry.moves == report.moves
    assert report.row_count == 12
    assert [one.path for one in dataset.inspect.partitions()] == [
        "n_dimension=0/channel_dimension=OTHER",
        "n_dimension=0/channel_dimension=UNKNOWN",
        "n_dimension=0/channel_dimension=esr",
    ]
    assert by_partition(dataset.at(version=3)) == old
    dataset.append([row("esr", 9, 7)])
    dataset.compact()
    assert_lies_as_written_by_its_descriptor(dataset)
    assert dataset.where("n = 7").count() == 1


def test_cap_can_shrink_and_the_most_frequent_values_keep_their_partitions() -> None:
    dataset = make(channel="*")
    dataset.append(
        [row(one, n) for one, count in (("a", 3), ("b", 1), ("c", 2)) for n in range(count)]
    )

    schema = DimensionSchema(
        dimensions=(DimensionRule(field_name="channel", allowed=read_allowed("*", ""), cap=2),)
    )
    dataset.dimensions.promote(schema, reroute=True)

    assert {one.path: one.row_count for one in dataset.inspect.partitions()} == {
        "channel_dimension=a": 3,
        "channel_dimension=c": 2,
        "channel_dimension=OTHER": 1,
    }


def test_dimension_of_no_field_is_refused_and_nothing_changes() -> None:
    dataset = three()

    with pytest.raises(LakebedError, match="nope"):
        dataset.dimensions.promote(schema_of(nope="*"), reroute=True)
    with pytest.raises(InvalidInputError, match="nope"):
        dataset.dimensions.promote({"nope": "*"}, reroute=True)

    assert dataset.version == 3


CHANGES = {"narrow": NARROW, "reorder": schema_of(n="*", channel=["beta"])}


@pytest.mark.parametrize("change", CHANGES)
def test_staged_batch_and_open_writer_of_the_old_rules_are_refused_by_name(change: str) -> None:
    dataset = three()
    waiting = dataset.staged.add([row("esr", 7)])
    writer = dataset.kite.writer()
    writer.write(row("beta", 8))
    dataset.dimensions.promote(CHANGES[change], reroute=True)

    for commit in (waiting.commit, writer.close):
        with pytest.raises(CommitConflictError, match="channel"):
            commit()

    assert dataset.where("id > 6").count() == 0
    dataset.append([row("esr", 7)])
    assert_lies_as_written_by_its_descriptor(dataset)


@pytest.mark.parametrize("change", CHANGES)
def test_rollback_behind_it_is_refused_by_name(change: str) -> None:
    dataset = three()
    dataset.dimensions.promote(CHANGES[change], reroute=True)
    dataset.append([row("esr", 5)])

    with pytest.raises(InvalidInputError, match="since moved to other partitions"):
        dataset.rollback(version=3)

    dataset.rollback(version=4)
    assert dataset.count() == 12
    assert_lies_as_written_by_its_descriptor(dataset)


OTHERS = {
    "append": lambda dataset: dataset.append([row(one, 9) for one in ("esr", "own", "beta")]),
    "overwrite": lambda dataset: dataset.overwrite([row("own", 9), row("beta", 9)]),
    "delete": lambda dataset: dataset.where("channel = 'beta' AND id = 1").delete(),
    "compact": lambda dataset: dataset.compact(),
    "rerun": lambda dataset: dataset.rerun([row("esr", 9)], run="daily", replace_all=True),
    "reroute": lambda dataset: dataset.dimensions.promote({"channel": []}, reroute=True),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.thorough
def test_others_at_any_moment_leave_no_row_in_a_wrong_place(
    change: str, other: str, phase: str
) -> None:
    dataset = three()
    inner = store_of(dataset)
    store = Interfering(inner, PHASES[phase], lambda: OTHERS[other](dataset))
    with contextlib.suppress(CommitConflictError):
        lakebed.Repository(store).open("d").dimensions.promote(CHANGES[change], reroute=True)

    assert_lies_as_written_by_its_descriptor(lakebed.Repository(inner).open("d"))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("phase", PHASES)
def test_it_at_any_moment_of_others_leaves_no_row_in_a_wrong_place(other: str, phase: str) -> None:
    dataset = three()
    inner = store_of(dataset)
    store = Interfering(
        inner, PHASES[phase], lambda: dataset.dimensions.promote(CHANGES["reorder"], reroute=True)
    )
    with contextlib.suppress(CommitConflictError, InvalidInputError):
        OTHERS[other](lakebed.Repository(store).open("d"))

    assert_lies_as_written_by_its_descriptor(lakebed.Repository(inner).open("d"))


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_it_happened_or_not_and_can_be_done_again(after: bool) -> None:
    for call in itertools.count(1):
        dataset = three()
        inner = store_of(dataset)
        store = DyingStore(inner, nth=call, after=after)
        try:
            lakebed.Repository(store).open("d").dimensions.promote(CHANGES["reorder"], reroute=True)
            died = False
        except Killed:
            died = True
        found = lakebed.Repository(inner).open("d")
        assert found.version in (3, 4)
        found.check(repair=True)  # the schema file for other tools may be behind, as after update
        assert_lies_as_written_by_its_descriptor(found)
        found.dimensions.promote(CHANGES["reorder"], reroute=True)
        assert found.count() == 12
        if not died:
            break


def test_head_that_is_opened_again_has_the_new_dimensions() -> None:
    dataset = three()
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)

    store = store_of(dataset)
    again = lakebed.Repository(store).open("d")
    assert again.descriptor == dataset.descriptor
    assert [one.path for one in again.inspect.partitions()] == ["n_dimension=0"]
    assert data_keys(store) >= {file.key for file in again.files()}


@pytest.mark.parametrize(
    "change",
    [
        lambda old: old.add_field("extra", "string"),
        lambda old: old.rename_field("id", "number"),
        lambda old: old.drop_field("id"),
    ],
    ids=["added", "renamed", "dropped"],
)
@pytest.mark.parametrize("rule", [schema_of(n="*"), schema_of(n="*", channel=["esr"])])
def test_dataset_whose_schema_has_changed_gets_other_levels(
    change: Any, rule: DimensionSchema
) -> None:
    dataset = three()
    dataset.evolve(change)

    dataset.dimensions.promote(rule, reroute=True)

    again = lakebed.Repository(store_of(dataset)).open("d")
    assert again.count() == 12
    assert again.check(deep=True).is_ok


STAGED: dict[str, dict[str, Any]] = {
    "append": {},
    "overwrite": {},
    "overwrite of a view": {"view": "channel_dimension = 'beta'"},
    "rerun": {"run": "a", "partitions": True},
}


@pytest.mark.parametrize("operation", STAGED)
@pytest.mark.parametrize("head", ["document", "tree"])
def test_batch_that_was_staged_before_can_be_read_and_discarded(operation: str, head: Any) -> None:
    store = new_store()
    dataset = lakebed.Repository(store).create("d", three().descriptor, head=head)
    dataset.append(three().arrow())
    options = dict(STAGED[operation])
    if "view" in options:
        options["view"] = dataset.where(options["view"])
    rows = [row("beta", 7)]
    added = dataset.staged.add(rows, operation.partition(" ")[0], **options)
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)
    (staged,) = dataset.staged.list()

    assert staged.rows.arrow().to_pylist() == rows
    with pytest.raises(CommitConflictError, match="other levels than n_dimension"):
        _ = staged.dataset
    with pytest.raises(CommitConflictError, match="promote"):
        staged.commit()
    staged.discard()

    assert not dataset.staged.list()
    assert not any(f"batch_id={added.batch_id}/" in key for key in data_keys(store))


PROMOTIONS: dict[str, Any] = {
    "grow": lambda dataset: dataset.dimensions.promote({"channel": ["beta", "own"]}),
    "narrow": lambda dataset: dataset.dimensions.promote({"channel": []}, reroute=True),
    "other": lambda dataset: dataset.dimensions.promote(schema_of(n="*"), reroute=True),
    "there and back": lambda dataset: there_and_back(dataset),
}


def there_and_back(dataset: lakebed.Dataset) -> None:
    before = dataset.descriptor
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)
    dataset.dimensions.promote(schema_of(channel=["beta"]), reroute=True)
    assert dataset.descriptor == before


@pytest.mark.parametrize("head", ["document", "tree"])
@pytest.mark.parametrize("channel", ["beta", "own"])
@pytest.mark.parametrize("promotion", PROMOTIONS)
@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_rows_that_were_deleted_before_a_promotion_do_not_come_back_by_a_base(
    verb: str, promotion: str, channel: str, head: Any
) -> None:
    dataset = lakebed.Repository(new_store()).create("d", three().descriptor, head=head)
    dataset.append([row("beta", n=1), row("own", n=2), row("esr", n=3)])
    base = dataset.snapshot()
    rows = base.where("channel = ?", [channel]).arrow()
    dataset.where("channel = ?", [channel]).delete()
    PROMOTIONS[promotion](dataset)

    with pytest.raises(CommitConflictError, match=r"the (delete|promote) that made version"):
        getattr(dataset, verb)(rows, base=base)

    assert dataset.where("channel = ?", [channel]).count() == 0


def test_rows_that_came_and_went_under_other_dimensions_do_conflict() -> None:
    dataset = make()
    base = dataset.snapshot()
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)
    dataset.append([row("beta", 1)])
    dataset.where("id = 1").delete()
    dataset.dimensions.promote(schema_of(channel=["beta"]), reroute=True)
    assert dataset.descriptor == base.descriptor

    with pytest.raises(CommitConflictError, match="the delete that made version 3"):
        dataset.overwrite([row("beta", 2)], base=base)


def test_promotion_alone_conflicts_with_no_base_of_other_partitions() -> None:
    dataset = three()
    base = dataset.snapshot()
    dataset.dimensions.promote({"channel": ["beta", "own"]})

    dataset.overwrite([row("beta", 7)], base=base)

    assert dataset.where("channel = 'beta'").count() == 1
    dataset.append([row("esr", 8)])
    with pytest.raises(CommitConflictError, match="rows have other partitions since"):
        dataset.overwrite([row("own", 9)], base=base)


BASED_ON_CAPPED: dict[str, Any] = {
    "append": lambda dataset, rows, base: dataset.append(rows, base=base),
    "overwrite": lambda dataset, rows, base: dataset.overwrite(rows, base=base),
    "overwrite of a view": lambda dataset, rows, base: dataset.overwrite(
        rows, dataset.where("channel_dimension = 'own'"), base=base
    ),
    "staged": lambda dataset, rows, base: dataset.staged.add(rows, "overwrite", base=base).commit(),
}


@pytest.mark.parametrize("verb", BASED_ON_CAPPED)
def test_deleted_rows_do_not_come_back_into_a_partition_that_a_cap_has_left_them(verb: str) -> None:
    dataset = lakebed.Repository(new_store()).create("d", capped(2))
    dataset.append([row("beta"), row("esr")])
    dataset.append([row("own", 3)])
    base = dataset.snapshot()
    rows = base.where("channel = 'own'").arrow()
    assert base.where("channel_dimension = 'OTHER'").count() == 1
    dataset.where("channel = 'own'").delete()
    dataset.where("channel = 'beta'").delete()

    with pytest.raises(CommitConflictError, match="rows have other partitions since"):
        BASED_ON_CAPPED[verb](dataset, rows, base)

    dataset.overwrite(rows)
    assert dataset.where("channel_dimension = 'own'").count() == 1


def test_deleted_rows_do_not_come_back_into_other_when_a_cap_is_reached() -> None:
    dataset = lakebed.Repository(new_store()).create("d", capped(2))
    dataset.append([row("beta"), row("own", 3)])
    base = dataset.snapshot()
    rows = base.where("channel = 'own'").arrow()
    dataset.where("channel = 'own'").delete()
    dataset.append([row("esr")])

    with pytest.raises(CommitConflictError, match="rows have other partitions since"):
        dataset.overwrite(rows, base=base)


def test_values_below_a_cap_conflict_by_their_partitions_alone() -> None:
    dataset = lakebed.Repository(new_store()).create("d", capped(9))
    dataset.append([row("beta"), row("own")])
    base = dataset.snapshot()
    dataset.append([row("beta"), row("esr")])

    dataset.overwrite([row("own", 7)], base=base)
    dataset.staged.add([row("new", 7)], "overwrite", base=base).commit()

    with pytest.raises(CommitConflictError, match="touched channel_dimension=beta since"):
        dataset.overwrite([row("beta", 7)], base=base)


def test_view_of_no_capped_dimension_does_not_conflict_with_others_outside() -> None:
    functions = [by.identity("id"), by.dimension("channel", "*", cap=1)]
    dataset = lakebed.Repository(new_store()).create(
        "d", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=functions)
    )
    dataset.append([row("beta", 1), row("own", 2)])
    base = dataset.snapshot()
    dataset.append([row("esr", 2)])
    assert dataset.where("channel_dimension = 'OTHER'").count() == 2

    dataset.overwrite([row("new", 1)], dataset.where("id = 1"), base=base)

    with pytest.raises(CommitConflictError, match="append"):
        dataset.overwrite([row("new", 2)], dataset.where("id = 2"), base=base)


def capped(cap: int) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("channel", "*", cap=cap)]
    )


def test_renamed_field_leaves_the_partitions_that_a_base_is_compared_by() -> None:
    dataset = three()
    base = dataset.snapshot()
    dataset.evolve(lambda one: one.rename_field("channel", "source"))
    dataset.append([{"source": "esr", "n": 0, "id": 8}])

    dataset.overwrite([{"source": "beta", "n": 0, "id": 7}], base=base)

    with pytest.raises(CommitConflictError, match="channel_dimension=OTHER since"):
        dataset.overwrite([{"source": "own", "n": 0, "id": 9}], base=base)


BASED: dict[str, Any] = {
    "overwrite of a view": lambda dataset, base: dataset.overwrite(
        [row("esr")], dataset, base=base
    ),
    "delete": lambda dataset, base: dataset.where("n = 0").delete(base=base),
    "merge": lambda dataset, base: dataset.merge([row("esr", 4)], on="id", base=base),
    "upsert": lambda dataset, base: dataset.upsert([row("esr", 4)], on="id", base=base),
    "update_rows": lambda dataset, base: dataset.update_rows({"n": "n + 1"}, base=base),
    "rerun": lambda dataset, base: dataset.rerun(
        [row("esr")], "a", partitions=True, base=base, replace_all=True
    ),
}


@pytest.mark.parametrize("verb", BASED)
@pytest.mark.parametrize("promotion", ["other", "there and back"])
def test_write_based_on_former_levels_is_a_conflict(promotion: str, verb: str) -> None:
    dataset = three()
    dataset.append([row("esr", 4)], run="a")
    base = dataset.snapshot()
    PROMOTIONS[promotion](dataset)

    with pytest.raises(CommitConflictError, match="promote"):
        BASED[verb](dataset, base)

    assert dataset.count() == 13


def test_transaction_and_staged_overwrite_of_a_view_conflict_with_levels_that_came_back() -> None:
    dataset = three()
    staged = dataset.staged.add(
        [row("beta", 7)], "overwrite", view=dataset.where("channel = 'beta'")
    )

    def in_a_transaction() -> None:
        with dataset.transaction() as transaction:
            transaction.append([row("beta", transaction.where("channel = 'beta'").count())])
            there_and_back(dataset)

    with pytest.raises(CommitConflictError, match="promote"):
        in_a_transaction()
    with pytest.raises(CommitConflictError, match="promote"):
        staged.commit()


def test_batch_is_not_staged_on_a_base_of_other_partitions() -> None:
    dataset = three()
    base = dataset.snapshot()
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)

    with pytest.raises(CommitConflictError, match="rows have other partitions since"):
        dataset.staged.add([row("beta", 7, n=9)], "overwrite", base=base)

    assert not dataset.staged.list()


def test_batch_that_was_staged_before_conflicts_with_an_erasure_after() -> None:
    dataset = three()
    staged = dataset.staged.add(
        [row("beta", 7)], "overwrite", view=dataset.where("channel = 'beta'")
    )
    dataset.dimensions.promote(schema_of(n="*"), reroute=True)
    dataset.erase("id = 1", reason="asked", grace="0s")

    with pytest.raises(CommitConflictError, match="erase"):
        staged.commit()


def test_rollback_of_a_view_behind_other_levels_is_refused_by_name() -> None:
    dataset = three()
    view = dataset.where("channel_dimension = 'beta'")
    dataset.dimensions.promote(schema_of(n="*", channel=["beta"]), reroute=True)

    with pytest.raises(InvalidInputError, match="since moved to other partitions"):
        dataset.rollback(version=2, view=view)


def test_live_file_of_other_levels_is_damage() -> None:
    dataset = three()
    state = state_of(dataset)
    label = "n_dimension=0/batch_id=1/part-0123456789abcdef0123456789abcdef"
    damaged = state.with_labels((*state.labels, label))
    view = WholeView(TRUE, state.layout.partition_level_types)

    with pytest.raises(CorruptMetadataError, match="does not have the form channel_dimension"):
        damaged.live.removed_by(view)
    with pytest.raises(CorruptMetadataError, match="does not have the form channel_dimension"):
        find_restoration(store_of(dataset), damaged, 1, view)


@pytest.mark.spark
def test_spark_reroutes_too(spark: Any, tmp_path: Any) -> None:
    dataset = lakebed.open_repository(tmp_path).create("d", three().descriptor)
    dataset.append(three().arrow())

    dataset.dimensions.promote(schema_of(n="*", channel=["esr"]), spark, reroute=True)

    assert by_partition(dataset) == by_partition(written_by(dataset.descriptor, dataset.arrow()))
    assert dataset.spark(spark).count() == 12

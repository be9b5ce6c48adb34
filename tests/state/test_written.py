"""What writers have written is one value, whoever they are and however it travels."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa

from lakebed import DatasetDescriptor
from lakebed.arrow.kernel import BatchTarget
from lakebed.spark.task_results import answer, results
from lakebed.state.caught import Caught
from lakebed.state.facts import FileFacts, facts_table
from lakebed.state.written import Written
from lakebed.store.segments import Segment

DESCRIPTOR = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
TARGET = BatchTarget(dataset="d", batch_id=1, descriptor=DESCRIPTOR)


def written(*numbers: int, caught: int = 1) -> Written:
    """Return what a writer has written, one file for each number."""
    labels = [f"n={number}/batch_id=1/part" for number in numbers]
    return Written(
        facts=facts_table(
            [
                FileFacts(label=label, row_count=number, size_bytes=9, checksum="sha256:00")
                for label, number in zip(labels, numbers, strict=True)
            ],
            DESCRIPTOR.stored_schema,
        ),
        postings={"n": (Segment(f"d/postings/n/{numbers[0]:010d}-00.seg", len(numbers)),)},
        caught=(Caught(dimension="n", cap=2, row_count=caught, values=(f"{caught}",)),),
        origins={label: ((f"raw-{label}", 1), ("raw", 3)) for label in labels},
        carried=dict.fromkeys(labels, "nightly"),
    )


def test_what_several_have_written_is_all_of_it_in_order() -> None:
    both = written(3, 1) + written(2, caught=4)

    assert both.labels == ("n=3/batch_id=1/part", "n=1/batch_id=1/part", "n=2/batch_id=1/part")
    assert both.partitions == {"n=1", "n=2", "n=3"}
    assert both.row_count == 6
    assert [segment.weight for segment in both.postings["n"]] == [2, 1]
    assert both.caught == (Caught(dimension="n", cap=2, row_count=5, values=("1", "4")),)
    assert both.origins.keys() == both.carried.keys() == set(both.labels)
    nothing = Written.nothing(DESCRIPTOR.stored_schema)
    assert (nothing.labels, nothing.row_count, nothing.keys(TARGET)) == ((), 0, ())
    assert nothing + both == both


def test_keys_are_those_of_all_objects() -> None:
    assert written(3, 1).keys(TARGET) == (
        "d/data/n=3/batch_id=1/part.parquet",
        "d/data/n=1/batch_id=1/part.parquet",
        "d/postings/n/0000000003-00.seg",
    )


def test_nothing_is_left_of_files_that_are_left_out() -> None:
    first, second, third = (written(number) for number in (1, 2, 3))
    rest = (first + second + third).without(frozenset(second.labels))

    assert rest.labels == (*first.labels, *third.labels)
    assert rest.origins.keys() == rest.carried.keys() == set(rest.labels)


def test_what_comes_from_a_task_is_what_it_has_written() -> None:
    for sent in (written(3, 1), Written.nothing(DESCRIPTOR.stored_schema)):
        (row,) = answer(sent).to_pylist()

        (came,) = results([SimpleNamespace(**row)], Written)  # type: ignore[list-item]

        assert came == sent
        assert came.facts.schema == sent.facts.schema

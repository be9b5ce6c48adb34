"""Protections: what they keep, and for how long."""

import datetime as dt

import pytest
from upkeep_lake import DESCRIPTOR, content, data_keys, row, sweep

from lakebed.errors import InvalidInputError, ReadOnlyError, VersionNotFoundError


def test_protected_version_outlives_a_cleanup_and_others_do_not(dataset) -> None:
    dataset.protections.add(version=1, reason="audit")

    report = sweep(dataset)

    assert content(dataset.at(version=1)) == [("a", 0), ("b", 0)]
    assert content(dataset) == [("a", 2), ("b", 2)]
    assert report.counts == {"superseded": 2}
    with pytest.raises(
        VersionNotFoundError, match=r"Version 2 of 'd' was cleaned up at 20"
    ) as info:
        dataset.at(version=2)
    assert info.value.hint == "Versions from 3 on can be read, and the protected 1."


def test_protected_batch_keeps_its_files_and_no_others(lake) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    dataset.append([row("b", 7)])
    batch_id = dataset.append([row("a", 1)]).batch_id
    dataset.overwrite([row("a", 2), row("b", 2)])
    dataset.protections.add(batch_id=batch_id, reason="disputed", until=None)

    report = sweep(dataset)

    assert [file.key for file in report.files if f"batch_id={batch_id}/" in file.key] == []
    assert report.counts == {"superseded": 1}
    assert content(dataset.at(batch_id=batch_id, alone=True)) == [("a", 1)]
    with pytest.raises(VersionNotFoundError, match="cleaned up") as caught:
        dataset.at(batch_id=batch_id)
    assert f"alone=True, or with --batch-id {batch_id} --alone" in caught.value.hint


def test_batch_alone_is_what_its_commit_brought(dataset) -> None:
    second = dataset.history()[2].batch_id
    dataset.append([row("a", 9)])

    assert content(dataset.at(batch_id=second, alone=True)) == [("a", 1), ("b", 1)]
    with pytest.raises(VersionNotFoundError, match="has no batch 5"):
        dataset.at(batch_id=5, alone=True)
    with pytest.raises(InvalidInputError, match="alone"):
        dataset.at(version=1, alone=True)
    sweep(dataset)
    with pytest.raises(VersionNotFoundError, match="was cleaned up"):
        dataset.at(batch_id=second, alone=True)


def test_what_was_cleaned_up_cannot_be_protected_any_more(dataset) -> None:
    batches = [commit.batch_id for commit in dataset.history()]
    sweep(dataset)
    version = dataset.version

    with pytest.raises(VersionNotFoundError, match="Version 1 of 'd' was cleaned up"):
        dataset.protections.add(version=1, reason="too late")
    with pytest.raises(VersionNotFoundError, match=f"Batch {batches[1]} of 'd' was cleaned up"):
        dataset.protections.add(batch_id=batches[1], reason="too late")
    assert dataset.version == version
    assert dataset.protections.list() == ()


@pytest.mark.parametrize("target", [{"version": 99}, {"version": -1}, {"batch_id": 99}])
def test_what_does_not_exist_cannot_be_protected(dataset, target) -> None:
    with pytest.raises(VersionNotFoundError, match="has no"):
        dataset.protections.add(**target, reason="x")


@pytest.mark.parametrize(
    "arguments",
    [
        {"reason": "x"},
        {"version": 1, "batch_id": 2, "reason": "x"},
        {"version": 1, "reason": " "},
        {"version": 1, "reason": "x", "until": dt.datetime(2020, 1, 1)},
    ],
)
def test_protection_needs_one_target_a_reason_and_a_future(dataset, arguments) -> None:
    with pytest.raises(InvalidInputError):
        dataset.protections.add(**arguments)
    assert dataset.version == 3


def test_protection_says_who_why_and_until_when(dataset) -> None:
    until = dt.datetime(2100, 1, 1)

    commit = dataset.protections.add(version=2, reason="audit", until=until)

    (one,) = dataset.protections.list()
    assert (commit.operation, commit.version) == ("protect", 4)
    assert (one.target, one.reason) == ("version 2", "audit")
    assert one.until == until.replace(tzinfo=dt.UTC)
    assert "@" in one.by
    assert abs(one.at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_second_protection_of_the_same_takes_the_place_of_the_first(dataset) -> None:
    dataset.protections.add(version=2, reason="first")
    dataset.protections.add(version=2, reason="second")

    assert [one.reason for one in dataset.protections.list()] == ["second"]


@pytest.mark.thorough
def test_expired_protection_counts_no_more_and_the_cleanup_takes_it_out(dataset) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=500)
    dataset.protections.add(version=1, reason="for a moment", until=soon)
    while dt.datetime.now(dt.UTC) <= soon:
        pass
    assert content(dataset.at(version=1)) == [("a", 0), ("b", 0)]

    report = sweep(dataset)

    assert report.counts == {"superseded": 4}
    assert dataset.protections.list() == ()
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        dataset.at(version=1)


def test_unprotected_version_goes_with_the_next_cleanup(dataset, lake) -> None:
    dataset.protections.add(version=1, reason="audit")
    sweep(dataset)
    dataset.protections.remove(version=1)

    report = sweep(dataset)

    assert report.counts == {"superseded": 2}
    assert len(data_keys(lake.store)) == 2
    with pytest.raises(VersionNotFoundError, match="has no protection of version 1"):
        dataset.protections.remove(version=1)


def test_older_state_cannot_protect_or_clean_up(dataset) -> None:
    older = dataset.at(version=1)

    for call in (
        lambda: older.protections.add(version=1, reason="x"),
        lambda: older.protections.remove(version=1),
        older.cleanup,
        older.check,
    ):
        with pytest.raises(ReadOnlyError):
            call()


@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_head_with_protections_says_format_2_and_plain_heads_stay_as_they_are(
    lake, head_format
) -> None:
    from lakebed.state.head import decode_head

    dataset = lake.create("d", DESCRIPTOR, head_format=head_format)
    dataset.append([row("a", 1)])
    key = f"d.by-dataset-metadata.{head_format}"

    def metadata() -> dict[str, str]:
        from lakebed.state.head import HeadFormat

        return decode_head(lake.store.get(key).data, HeadFormat(head_format), key).metadata

    plain = metadata()
    dataset.protections.add(version=1, reason="x")
    protected = metadata()
    dataset.protections.remove(version=1)

    assert plain["lakebed.format_version"] == metadata()["lakebed.format_version"] == "1"
    assert protected["lakebed.format_version"] == "2"
    assert set(protected) - set(plain) == {"lakebed.protections"}

"""How many public names there are, and that each former one is refused with the new one."""

import inspect
import uuid

import click
import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, View
from lakebed.cli import main
from lakebed.common.former_names import ALIASES, FORMER_CALLS, FORMER_NAMES
from lakebed.errors import InvalidInputError, RenamedError
from lakebed.selection import ViewSelection

MOST_NAMES = {Dataset: 53, View: 30, Repository: 16, ViewSelection: 14}
MOST_VERBS = 44


def names_of(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def numbers(lake: Repository) -> Dataset:
    numbers = lake.create("numbers", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    numbers.append([{"n": 1}])
    return numbers


@pytest.mark.parametrize("of", MOST_NAMES)
def test_a_class_has_few_names(of: type) -> None:
    assert len(names_of(of)) <= MOST_NAMES[of], sorted(names_of(of))


def test_the_command_line_has_few_verbs() -> None:
    verbs = main.list_commands(click.Context(main))

    assert len(verbs) <= MOST_VERBS, verbs


FORMER = [
    (of, old, new)
    for of, names in FORMER_NAMES.items()
    if of != "Repository"
    for old, new in names.items()
]


def told(new: str) -> str:
    """Return the path of a new spelling, without its call."""
    return new.partition("(")[0].partition(" ")[0]


@pytest.mark.parametrize(("of", "old", "new"), FORMER)
def test_former_name_is_refused_with_the_new_one(
    numbers: Dataset, of: str, old: str, new: str
) -> None:
    things = {
        "View": [numbers, numbers.where("n > 0")],
        "Dataset": [numbers],
    }
    for thing in things[of]:
        with pytest.raises(RenamedError, match=f"{old} is now") as caught:
            getattr(thing, old)
        assert not hasattr(thing, old)
        assert old not in dir(thing)
        spelling = told(caught.value.message.rpartition(" is now ")[2].rstrip("."))
        owner, *names = spelling.split(".")
        found: object = lakebed.Repository if owner == "Repository" else thing
        assert owner in ("Repository", type(thing).__name__)
        assert spelling.endswith(told(new))
        if owner == "Repository":
            found = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
        for name in names:
            found = getattr(found, name)


def test_spellings_of_other_libraries_work_and_are_not_listed(numbers: Dataset) -> None:
    numbers.append([{"n": 2}, {"n": 3}])
    things = [numbers, numbers.where("n > 0"), numbers.limit(9), numbers.at(version=2)]
    for thing in [*things, numbers.changes(1)]:
        rows = thing.arrow()
        assert thing.to_arrow() == rows
        assert thing.to_pandas().equals(rows.to_pandas())
        assert thing.to_polars().equals(thing.polars())
        assert names_of(thing).isdisjoint(ALIASES)
        assert names_of(type(thing)).isdisjoint(ALIASES)
    for view in things:
        assert len(view) == view.count() == 3
        assert view.columns == ("n",)
        assert view.head(1).num_rows == 1
    for view in things[:2]:
        assert view.filter("n = 3").arrow()["n"].to_pylist() == [3]
    assert numbers.select("n").filter("n = 3").to_arrow()["n"].to_pylist() == [3]
    assert numbers.filter("n = ?", [2]).to_arrow(columns=["n"])["n"].to_pylist() == [2]
    assert numbers.to_pandas(dtype_backend="pyarrow").dtypes["n"] == "int64[pyarrow]"
    assert bool(numbers.filter("n > 9"))
    assert len(numbers.filter("n > 9")) == 0


def test_a_word_of_other_libraries_is_refused_with_ours(numbers: Dataset, lake: Repository) -> None:
    for thing, word, ours in ((numbers, "toPandas", "pandas"), (lake, "table", "open")):
        with pytest.raises(RenamedError, match=f"has no '{word}'") as caught:
            getattr(thing, word)
        assert f"`{ours}`" in caught.value.hint


@pytest.mark.parametrize(("old", "new"), FORMER_NAMES["Repository"].items())
def test_former_name_of_a_repository_is_refused_with_the_new_one(
    lake: Repository, old: str, new: str
) -> None:
    with pytest.raises(RenamedError, match=f"Repository.{old} is now") as caught:
        getattr(lake, old)

    assert new in caught.value.message
    found: object = lake
    for name in told(new).split("."):
        found = getattr(found, name)


@pytest.mark.parametrize(("old", "new"), FORMER_CALLS.items())
def test_former_method_that_is_a_group_is_refused_with_the_new_one(
    numbers: Dataset, old: str, new: str
) -> None:
    with pytest.raises(RenamedError, match=f"Dataset.{old}") as caught:
        getattr(numbers, old)()

    assert f"Dataset.{new}()" in caught.value.message
    assert callable(getattr(getattr(numbers, old), new.partition(".")[2]))


def test_unknown_name_is_an_ordinary_attribute_error(numbers: Dataset, lake: Repository) -> None:
    for thing in (numbers, numbers.where("n > 0"), lake):
        with pytest.raises(AttributeError, match="has no attribute 'frobnicate'") as caught:
            getattr(thing, "frobnicate")  # noqa: B009 - no name that a type checker lets pass
        assert not isinstance(caught.value, RenamedError)


def test_no_former_name_is_a_name_again() -> None:
    classes = {"View": View, "Dataset": Dataset}
    for of, names in FORMER_NAMES.items():
        assert names_of(classes.get(of, Repository)).isdisjoint(names), of


def test_former_form_of_publish_is_refused_with_the_new_one(numbers: Dataset) -> None:
    for call in (numbers.publish, numbers.unpublish):
        with pytest.raises(InvalidInputError, match="not a format") as caught:
            call("thrift://hive:9083", table="lake.numbers")  # type: ignore[call-overload]
        assert "Name the format first: delta, iceberg, hive or kartothek" in caught.value.hint
    with pytest.raises(InvalidInputError, match="None is not a format"):
        numbers.publish(table="lake.numbers")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="delta has no table"):
        numbers.publish("delta", table="lake.numbers")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="needs a name"):
        numbers.unpublish("hive")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="without print_sql"):
        numbers.publish("hive", table="lake.numbers", since=1)  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="print_sql with check"):
        numbers.publish("hive", table="lake.numbers", print_sql=True, check=True)  # type: ignore[call-overload]


def test_compaction_of_metadata_takes_nothing_of_data_files(numbers: Dataset) -> None:
    if ON_TREES:  # its head has the last commits
        numbers.compact(metadata=True)
    assert numbers.compact(metadata=True, dry_run=True) == ()
    with pytest.raises(InvalidInputError, match="no data file"):
        numbers.compact(metadata=True, sort_by="n")  # type: ignore[call-overload]


def test_export_of_a_view_of_another_repository_is_refused(numbers: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="not in memory://elsewhere"):
        lakebed.open_repository("memory://elsewhere").trees.export(numbers, "memory://tree")


@pytest.mark.parametrize("group", ["indices", "protections", "sources", "inspect", "kite"])
def test_group_shows_its_calls(numbers: Dataset, group: str) -> None:
    calls = {
        name
        for name, _ in inspect.getmembers(type(getattr(numbers, group)), inspect.isfunction)
        if not name.startswith("_")
    }

    assert len(calls) >= 3
    assert repr(numbers) in repr(getattr(numbers, group))

"""Errors that newcomers meet first, and the calls that their hints name."""

import pytest

import lakebed
from lakebed.errors import (
    DatasetExistsError,
    InvalidInputError,
    InvalidNameError,
    PredicateError,
    RenamedError,
)


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.open_repository(tmp_path)
    lake.write("o", [{"id": n} for n in range(5)])
    return lake


@pytest.mark.parametrize(
    ("word", "ours"),
    [("vacuum", "cleanup"), ("optimize", "compact"), ("restore", "rollback")],
)
def test_words_of_other_tools_name_our_call(lake, word, ours):
    with pytest.raises(RenamedError) as caught:
        getattr(lake["o"], word)

    assert f"`{ours}`" in caught.value.hint
    assert hasattr(lake["o"], ours)
    assert not hasattr(lake["o"], word)


def test_condition_with_a_list_of_values(lake):
    with pytest.raises(PredicateError) as caught:
        lake["o"].delete("id IN ?", [1, 2])
    assert '"id IN ?", [[1, 2, 3]]' in caught.value.hint

    lake["o"].delete("id IN ?", [[1, 2]])

    assert lake["o"].count() == 3


def test_other_conditions_with_too_many_parameters_get_no_advice_on_lists(lake):
    with pytest.raises(PredicateError) as caught:
        lake["o"].where("id = ?", [1, 2])

    assert "IN takes" not in caught.value.hint


def test_create_of_an_existing_dataset_names_the_argument_that_opens_it(lake):
    schema = lake["o"].descriptor.schema
    with pytest.raises(DatasetExistsError) as caught:
        lake.create("o", schema)
    assert "if_exists, on the command line --if-exists, with the value 'open'" in caught.value.hint

    assert lake.create("o", schema, if_exists="open").count() == 5


def test_adoption_of_a_path_names_the_repository_above_it(lake):
    with pytest.raises(InvalidNameError) as caught:
        lake.adopt("wh/t")

    assert "open_repository('wh').adopt('t'" in caught.value.hint


def test_ingest_from_a_path_names_the_source(tmp_path):
    with pytest.raises(InvalidInputError, match="not a source") as caught:
        lakebed.Ingest(name="n", into=f"{tmp_path}/o", source="in/*.csv")  # type: ignore[arg-type]

    assert "FromFiles, with paths" in caught.value.hint

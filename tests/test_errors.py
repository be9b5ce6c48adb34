"""The tree of errors."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed import errors
from lakebed.errors import ErrorCode, LakebedError, from_document, to_document

CLASSES = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, LakebedError) and one.__module__ == errors.__name__
]
TREE = {
    "NotFoundError": (
        3,
        {
            "DatasetNotFoundError",
            "VersionNotFoundError",
            "ObjectNotFoundError",
            "RecordNotFoundError",
        },
    ),
    "AlreadyExistsError": (4, {"DatasetExistsError", "ObjectExistsError", "RecordExistsError"}),
    "InvalidInputError": (
        2,
        {
            "SchemaMismatchError",
            "PartitionSpecError",
            "InvalidNameError",
            "PredicateError",
            "ReadOnlyError",
            "ChecksFailedError",
            "RejectsError",
            "DuplicateKeyError",
            "RenamedError",
        },
    ),
    "ConflictError": (
        5,
        {"CommitConflictError", "CommitUnknownError", "PreconditionFailedError"},
    ),
    "StorageError": (
        6,
        {"AccessDeniedError", "MetadataProviderError", "StorageFullError", "ThrottledError"},
    ),
    "FormatError": (7, {"CorruptMetadataError", "UnsupportedVersionError"}),
    "MissingDependencyError": (8, {"WorkerEnvironmentError"}),
    "NotPublishedError": (9, set()),
}


def an_error(cls: type[LakebedError]) -> LakebedError:
    extra = {
        "CommitConflictError": {"expected": 3, "actual": 5, "partitions": ("p=a", "p=b")},
        "CommitUnknownError": {"commit_id": "c0ffee"},
        "DamagedFileError": {"dataset": "d", "key": "d/data/part-0.parquet"},
        "StaleRerunError": {"expected": 3, "actual": 5},
        "MissingDependencyError": {"extra": "s3"},
        "WorkerEnvironmentError": {"extra": "spark"},
    }.get(cls.__name__, {})
    if issubclass(cls, errors.StorageError):
        extra = {"retryable": True}
    return cls("It happened.", hint="Do this.", **extra)


def test_the_tree_has_the_branches_that_its_docstring_draws() -> None:
    branches = {one.__name__ for one in CLASSES if one.__mro__[1] is LakebedError}
    twigs = {
        name: {one.__name__ for one in CLASSES if one.__mro__[1].__name__ == name}
        for name in branches
    }

    assert twigs == {name: found for name, (_, found) in TREE.items()}
    drawn = set(re.findall(r"\w+Error\b", errors.__doc__))
    names = {one.__name__ for one in CLASSES}
    assert drawn - {"LookupError", "ValueError", "ImportError", "AttributeError"} == names


def test_every_class_has_a_code_of_its_own_and_none_is_unused() -> None:
    codes = [one.__dict__["code"] for one in CLASSES]

    assert sorted(codes) == sorted(ErrorCode)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_exit_code_is_that_of_the_branch(cls: type[LakebedError]) -> None:
    expected = [TREE[one.__name__][0] for one in cls.__mro__ if one.__name__ in TREE] or [1]

    assert [cls.exit_code] == expected


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_arrives_whole_from_another_process(
    cls: type[LakebedError], protocol: int
) -> None:
    error = an_error(cls)

    arrived = pickle.loads(pickle.dumps(error, protocol))

    assert type(arrived) is cls
    assert vars(arrived) == vars(error)
    assert str(arrived) == str(error) == "It happened. Do this."
    assert (arrived.code, arrived.exit_code) == (cls.code, cls.exit_code)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_arrives_whole_as_json(cls: type[LakebedError]) -> None:
    error = an_error(cls)
    error.add_note("Seen by a task.")

    arrived = from_document(json.loads(json.dumps(to_document(error))))
    arrived.add_note("Seen by the driver.")

    assert type(arrived) is cls
    notes = {"__notes__": ["Seen by a task.", "Seen by the driver."]}
    assert vars(arrived) == {**vars(error), **notes}
    assert str(arrived) == str(error)


def test_an_error_of_somebody_elses_class_arrives_as_the_nearest_of_the_tree() -> None:
    class TapeError(errors.ThrottledError):
        """Of a store that we do not know."""

    arrived = from_document(to_document(TapeError("It is full.", retryable=True)))

    assert type(arrived) is errors.ThrottledError
    assert arrived.retryable


@pytest.mark.parametrize("name", ["ErrorCode", "Any", "_rebuild", "int", ""])
def test_a_document_names_errors_of_the_tree_alone(name: str) -> None:
    with pytest.raises(TypeError, match=repr(name)):
        from_document({"class": name, "attributes": {"message": "It happened."}})


def test_attributes_of_a_conflict_arrive() -> None:
    arrived = pickle.loads(pickle.dumps(an_error(errors.CommitConflictError)))

    assert (arrived.expected, arrived.actual, arrived.partitions) == (3, 5, ("p=a", "p=b"))


def test_built_in_bases_let_callers_catch_what_they_expect() -> None:
    assert issubclass(errors.DatasetNotFoundError, LookupError)
    assert issubclass(errors.SchemaMismatchError, ValueError)
    assert issubclass(errors.MissingDependencyError, ImportError)
    assert not issubclass(errors.NotFoundError, KeyError)  # prints its message in quotes


def _module_of(path: Path) -> str:
    parts = path.relative_to(Path(lakebed.__file__).parents[1]).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def raises_headings() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(lakebed.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            text = ast.get_docstring(node) or ""
            for section in re.findall(r"^Raises:\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE):
                for name in re.findall(r"^[ ]{4}(\w[\w.]*):", section, re.MULTILINE):
                    yield _module_of(path), name


def promised_class(module: str, name: str) -> type:
    """Return the class that a module means by a name; int if there is none.

    It is one of `errors`, of Python, of a library that the name begins with, or of the module.
    """
    library, _, own = name.rpartition(".")
    places = (errors, builtins, importlib.import_module(library or module))
    return next((getattr(place, own) for place in places if hasattr(place, own)), int)


@pytest.mark.thorough
def test_every_error_that_a_docstring_promises_exists() -> None:
    promised = list(raises_headings())

    unknown = [
        (place, name)
        for place, name in promised
        if not issubclass(promised_class(place, name), BaseException)
    ]
    assert len(promised) > 100
    assert unknown == []

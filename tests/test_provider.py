"""Metadata providers: one contract for the heads and for a provider of the user's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import DatasetDescriptor
from lakebed.errors import (
    CorruptMetadataError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    MetadataProviderError,
    SchemaMismatchError,
)

_names = itertools.count()


def described(*names: str, **more: Any) -> DatasetDescriptor:
    fields = [{"name": name, "type": ["null", "long"]} for name in names]
    return DatasetDescriptor(schema={"type": "record", "name": "r", "fields": fields}, **more)


class Catalog(lakebed.MetadataProvider):
    """Keeps descriptors in memory, in the form that can be stored."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.fails = False

    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        self._maybe_fail()
        self.documents[name] = descriptor.to_document()

    def load(self, name: str) -> DatasetDescriptor:
        if name not in self.documents:
            raise DatasetNotFoundError(f"The catalog has no {name!r}.")
        return DatasetDescriptor.from_document(self.documents[name])

    def delete(self, name: str) -> bool:
        self._maybe_fail()
        return self.documents.pop(name, None) is not None

    def list(self) -> list[str]:
        return sorted(self.documents)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise RuntimeError("out of order")


def repository(**options: Any) -> lakebed.Repository:
    return lakebed.open_repository(f"memory://provider-{next(_names)}", **options)


@pytest.fixture(params=["heads", "own", "files"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.MetadataProvider:
    if request.param == "files":
        return lakebed.FileMetadataProvider(tmp_path / "catalog")
    return repository().metadata if request.param == "heads" else Catalog()


class TestEveryProvider:
    """Behaviours 31 and 32."""

    def test_what_is_saved_is_loaded(self, provider: lakebed.MetadataProvider) -> None:
        descriptor = described("a", "b", partition_by="hash(a, 4)", properties={"owner": "ops"})

        provider.save("d", descriptor)

        assert provider.load("d") == descriptor

    def test_a_later_descriptor_takes_the_place_of_the_earlier(
        self, provider: lakebed.MetadataProvider
    ) -> None:
        provider.save("d", described("a"))
        provider.save("d", described("a", "b"))

        assert provider.load("d") == described("a", "b")
        assert provider.list() == ["d"]

    def test_names_are_listed_in_order_and_vanish_when_deleted(
        self, provider: lakebed.MetadataProvider
    ) -> None:
        assert provider.list() == []
        for name in ("b", "a", "c"):
            provider.save(name, described("a"))

        assert provider.delete("b") is True

        assert provider.list() == ["a", "c"]

    def test_deleting_what_is_not_there_is_false(self, provider: lakebed.MetadataProvider) -> None:
        provider.save("d", described("a"))

        assert [provider.delete("d"), provider.delete("d")] == [True, False]

    def test_loading_what_is_not_there_is_not_found(
        self, provider: lakebed.MetadataProvider
    ) -> None:
        with pytest.raises(DatasetNotFoundError, match="'d'"):
            provider.load("d")

    def test_create_is_of_what_is_not_there_and_update_of_what_is(
        self, provider: lakebed.MetadataProvider
    ) -> None:
        with pytest.raises(DatasetNotFoundError):
            provider.update("d", described("a"))
        provider.create("d", described("a"))
        with pytest.raises(DatasetExistsError):
            provider.create("d", described("b"))

        assert provider.load("d") == described("a")
        provider.update("d", described("a", "b"))
        assert provider.load("d") == described("a", "b")
        assert (provider.exists("d"), provider.exists("e")) == (True, False)


def test_the_heads_refuse_what_the_rules_refuse() -> None:
    metadata = repository().metadata
    metadata.save("d", described("a", format="parquet"))

    with pytest.raises(InvalidInputError, match="format"):
        metadata.save("d", described("a", format="avro"))

    assert metadata.load("d") == described("a")


def test_an_own_provider_is_told_of_every_change_after_the_head() -> None:
    catalog = Catalog()
    lake = repository(metadata=catalog)

    dataset = lake.create("d", described("a"))
    assert catalog.load("d") == described("a")
    dataset.evolve(described("a", "b"), base=dataset.version)
    assert catalog.load("d") == described("a", "b")
    lake.drop("d")
    assert catalog.list() == []
    assert lake.metadata is catalog


def test_an_own_provider_is_not_told_of_what_did_not_happen() -> None:
    catalog = Catalog()
    lake = repository(metadata=catalog)
    dataset = lake.create("d", described("a"))

    with pytest.raises(DatasetExistsError):
        lake.create("d", described("b"))
    texts = [{"name": "a", "type": ["null", "string"]}]
    with pytest.raises(SchemaMismatchError):
        dataset.evolve(
            DatasetDescriptor(schema={"type": "record", "name": "r", "fields": texts}),
            base=dataset.version,
        )
    with pytest.raises(DatasetNotFoundError):
        lake.drop("e")

    assert catalog.load("d") == described("a")


def test_a_dataset_is_created_from_what_the_provider_keeps() -> None:
    catalog = Catalog()
    catalog.save("d", described("a"))

    dataset = repository(metadata=catalog).create("d")

    assert dataset.descriptor == described("a")


def test_a_provider_that_counts_its_descriptors_is_taken_while_it_has_none() -> None:
    class Counting(Catalog):
        def __len__(self) -> int:
            return len(self.documents)

    catalog = Counting()

    assert repository(metadata=catalog).metadata is catalog


def test_what_is_no_provider_is_refused_at_once() -> None:
    with pytest.raises(InvalidInputError, match="metadata is 'catalog'"):
        lakebed.open_repository("memory://refused", metadata="catalog")  # type: ignore[arg-type]


def test_a_dataset_that_the_provider_does_not_know_needs_a_descriptor() -> None:
    with pytest.raises(DatasetNotFoundError, match="catalog"):
        repository(metadata=Catalog()).create("d")
    with pytest.raises(InvalidInputError, match="without a descriptor"):
        repository().create("d")


@pytest.mark.parametrize(
    ("change", "said"),
    [("create", "was created"), ("update", "was updated to version 1"), ("drop", "was dropped")],
)
def test_a_provider_that_fails_is_told_apart_from_a_dataset_that_did_not_change(
    change: str, said: str
) -> None:
    catalog = Catalog()
    lake = repository(metadata=catalog)
    if change != "create":
        lake.create("d", described("a"))
    catalog.fails = True

    changes: dict[str, Callable[[], object]] = {
        "create": lambda: lake.create("d", described("a")),
        "update": lambda: lake.open("d").evolve(described("a", "b"), base=0),
        "drop": lambda: lake.drop("d"),
    }

    with pytest.raises(MetadataProviderError, match=said) as caught:
        changes[change]()

    assert "RuntimeError: out of order" in caught.value.message
    assert not caught.value.retryable
    assert lake.exists("d") is (change != "drop")
    catalog.fails = False
    if change != "drop":
        dataset = lake.open("d")
        dataset.evolve(lambda old: old)
        assert catalog.load("d") == dataset.descriptor


def test_datasets_follow_what_others_have_written_to_the_provider(tmp_path: Path) -> None:
    others = lakebed.FileMetadataProvider(tmp_path)
    lake = lakebed.open_repository(tmp_path, metadata=lakebed.FileMetadataProvider(tmp_path))
    kept = lake.create("kept", described("a"))
    kept.append([{"a": 1}])
    others.update("kept", described("a", "b"))
    others.create("new", described("c", partition_by="hash(c, 2)"))

    assert lake.trees.follow_metadata() == ("kept", "new")

    assert lake.open("kept").descriptor == described("a", "b")
    assert list(lake.open("kept").kite.reader()) == [{"a": 1, "b": None}]
    assert lake.open("new").descriptor == others.load("new")
    assert lake.trees.follow_metadata() == ()
    others.delete("new")
    assert lake.trees.follow_metadata() == ()
    assert lake.exists("new")  # nothing is ever dropped


def test_what_the_rules_refuse_is_not_followed_and_says_which(tmp_path: Path) -> None:
    provider = lakebed.FileMetadataProvider(tmp_path)
    lake = lakebed.open_repository(tmp_path / "lake", metadata=provider)
    lake.create("d", described("a"))
    provider.update("d", described("a", format="avro"))

    with pytest.raises(InvalidInputError, match="format") as caught:
        lake.trees.follow_metadata()

    assert "'d'" in caught.value.__notes__[0]
    assert lake.open("d").descriptor == described("a")
    with pytest.raises(InvalidInputError, match="no metadata provider"):
        repository().trees.follow_metadata()


def test_of_many_who_create_one_wins_and_of_those_who_save_each_is_whole(tmp_path: Path) -> None:
    def create(n: int) -> bool:
        try:
            lakebed.FileMetadataProvider(tmp_path).create("d", described(f"f{n}"))
        except DatasetExistsError:
            return False
        return True

    def save(n: int) -> None:
        lakebed.FileMetadataProvider(tmp_path).save("d", described(f"s{n}"))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(8))) == 1
        list(pool.map(save, range(4)))

    provider = lakebed.FileMetadataProvider(tmp_path)
    assert provider.list() == ["d"]
    assert provider.load("d") in [described(f"s{n}") for n in range(4)]


def test_descriptor_that_others_delete_while_it_is_saved_is_saved_all_the_same(
    tmp_path: Path,
) -> None:
    class DeletedMeanwhile(lakebed.FileMetadataProvider):
        def create(self, name: str, descriptor: lakebed.DatasetDescriptor) -> None:
            try:
                super().create(name, descriptor)
            except DatasetExistsError:
                self.delete(name)
                raise

    provider = DeletedMeanwhile(tmp_path)
    provider.create("d", described("a"))

    provider.save("d", described("b"))

    assert provider.load("d") == described("b")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', "\xff"])
def test_file_that_describes_nothing_is_corrupt(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.descriptor.json").write_text(text, encoding="latin-1")

    with pytest.raises(CorruptMetadataError, match="does not describe a dataset"):
        lakebed.FileMetadataProvider(tmp_path).load("d")


def test_drop_says_whether_there_was_something() -> None:
    lake = repository()
    lake.create("d", described("a"))

    assert lake.drop("d", if_missing="ignore") is True
    assert lake.drop("d", if_missing="ignore") is False
    with pytest.raises(DatasetNotFoundError):
        lake.drop("d")
    with pytest.raises(InvalidInputError, match="if_missing"):
        lake.drop("d", if_missing="perhaps")  # type: ignore[arg-type]


class Small(lakebed.MetadataProvider):
    """Keeps descriptors as the first design of Kite has it: save, load and delete."""

    def __init__(self) -> None:
        self.kept: dict[str, DatasetDescriptor] = {}

    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        self.kept[name] = descriptor

    def load(self, name: str) -> DatasetDescriptor:
        if name not in self.kept:
            raise DatasetNotFoundError(f"Nothing is kept for {name!r}.")
        return self.kept[name]

    def delete(self, name: str) -> bool:
        return self.kept.pop(name, None) is not None


def test_a_provider_of_save_load_and_delete_alone_serves_the_life_of_a_dataset() -> None:
    provider = Small()
    lake = repository(metadata=provider)

    lake.create("d", described("a"))
    lake.open("d").evolve(described("a", "b"), base=0)

    assert provider.load("d") == lake.open("d").descriptor
    assert lake.metadata.exists("d")
    assert lake.drop("d")
    assert provider.kept == {}


def test_a_provider_that_does_not_list_is_followed_by_name_and_says_so() -> None:
    provider = Small()
    lake = repository(metadata=provider)
    provider.save("new", described("a"))
    provider.save("other", described("a"))

    with pytest.raises(InvalidInputError, match="Small cannot list its datasets") as caught:
        lake.trees.follow_metadata()

    assert "follow_metadata(['flights'])" in str(caught.value.hint)
    assert lake.list() == []
    assert lake.trees.follow_metadata(["new"]) == ("new",)
    assert lake.trees.follow_metadata("new") == ()
    assert lake.list() == ["new"]
    with pytest.raises(DatasetNotFoundError, match="'missing'"):
        lake.trees.follow_metadata(["missing"])


class Strict(Catalog):
    """Refuses descriptors of more than two fields."""

    def check(self, name: str, descriptor: DatasetDescriptor) -> None:
        if len(descriptor.schema.names) > 2:
            raise InvalidInputError(f"{name!r} has too many fields.", hint="Take two.")


@pytest.mark.parametrize(
    "create",
    [
        lambda lake: lake.create("d", described("a", "b", "c")),
        lambda lake: lake.write("d", [{"a": 1, "b": 2, "c": 3}]),
    ],
)
def test_dataset_that_the_provider_refuses_leaves_nothing(
    create: Callable[[lakebed.Repository], object],
) -> None:
    lake = repository(metadata=Strict())

    with pytest.raises(InvalidInputError, match="too many fields"):
        create(lake)

    assert list(lake.store.list("")) == []
    assert lake.metadata.list() == lake.list() == []


def test_update_that_the_provider_refuses_changes_nothing() -> None:
    lake = repository(metadata=Strict())
    dataset = lake.create("d", described("a"))
    edits: list[Callable[[], object]] = [
        lambda: dataset.evolve(described("a", "b", "c"), base=dataset.version),
        lambda: dataset.append([{"a": 1, "b": 1, "c": 1}], unknown="keep"),
    ]

    for edit in edits:
        with pytest.raises(InvalidInputError, match="too many fields"):
            edit()

    assert lake.open("d").version == 0
    assert lake.open("d").descriptor == lake.metadata.load("d") == described("a")
    dataset.evolve(described("a", "b"), base=dataset.version)
    assert lake.metadata.load("d") == described("a", "b")

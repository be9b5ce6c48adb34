"""Metadata providers: one contract for the heads and for a provider of the user's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed import DatasetDescriptor
from lakebed.errors import (
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


@pytest.fixture(params=["heads", "own"])
def provider(request: pytest.FixtureRequest) -> lakebed.MetadataProvider:
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
    dataset.update(described("a", "b"))
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
        dataset.update(DatasetDescriptor(schema={"type": "record", "name": "r", "fields": texts}))
    with pytest.raises(DatasetNotFoundError):
        lake.drop("e")

    assert catalog.load("d") == described("a")


def test_a_dataset_is_created_from_what_the_provider_keeps() -> None:
    catalog = Catalog()
    catalog.save("d", described("a"))

    dataset = repository(metadata=catalog).create("d")

    assert dataset.descriptor == described("a")


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
        "update": lambda: lake.open("d").update(described("a", "b")),
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
        dataset.update(dataset.descriptor)
        assert catalog.load("d") == dataset.descriptor

"""Repositories: storage locations that hold datasets."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Mapping
from typing import Literal

from lakebed.dataset import Dataset
from lakebed.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    ObjectExistsError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.html import facts_to_html
from lakebed.model.keys import TABLE
from lakebed.model.names import check_dataset_name
from lakebed.state import kartothek, transaction
from lakebed.state.head import HeadFormat
from lakebed.state.reader import list_names, read_head
from lakebed.state.state import State, digest_of
from lakebed.store import Store, open_store
from lakebed.view import Snapshot, Source


class Repository:
    """A storage location that holds datasets: a directory, or a bucket and prefix.

    >>> repository = open_repository("memory://doctest-repository")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "flight", "fields": fields})
    >>> flights = repository.create("flights", descriptor)
    >>> repository.list(), repository.exists("flight")
    (['flights'], False)
    """

    def __init__(self, store: Store) -> None:
        """Use `open_repository` instead, unless you have made a store of your own."""
        self._store = store

    def __repr__(self) -> str:
        return f"<Repository {self.uri}>"

    def _repr_html_(self) -> str:
        return facts_to_html("Repository", {"where": self.uri})

    @property
    def uri(self) -> str:
        """Where it is."""
        return self._store.uri

    @property
    def store(self) -> Store:
        """The store under it."""
        return self._store

    def create(
        self,
        name: str,
        descriptor: DatasetDescriptor,
        if_exists: Literal["error", "open"] = "error",
        *,
        head_format: Literal["json", "msgpack.zstd"] = "json",
    ) -> Dataset:
        """Create a dataset.

        Args:
            name: Letters, digits, `+`, `-` and `_`.
            descriptor: What it is.
            if_exists: `open` returns the dataset that is there; its descriptor must be equal.
            head_format: `json` can be read by eye, `msgpack.zstd` is a sixth of the size.

        Raises:
            DatasetExistsError: The name is taken, or the dataset there has another descriptor.
            InvalidNameError: The name is not legal.
            ReadOnlyError: The store cannot swap.

        Cost:
            Two PUTs, one conditional PUT, one GET.
        """
        check_dataset_name(name)
        if if_exists not in ("error", "open"):
            raise InvalidInputError(f"if_exists is {if_exists!r}.", hint="Give 'error' or 'open'.")
        format_ = _head_format(head_format)
        found = self._find(name)
        if found is not None:
            return self._existing(found, descriptor, if_exists)
        # The schema file is for other tools; ours is in the head, so that it changes with it.
        self._put_schema(name, descriptor)
        try:
            transaction.create(self._store, _first_state(name, descriptor, format_))
        except ObjectExistsError:
            # Somebody else was faster: as if the dataset had been there before, schema file too.
            winner = self.open(name)
            self._put_schema(name, winner.descriptor)
            return self._existing(winner, descriptor, if_exists)
        return self.open(name)

    def _put_schema(self, name: str, descriptor: DatasetDescriptor) -> None:
        self._store.put(
            kartothek.schema_key(name, TABLE),
            kartothek.encode_schema(descriptor.schema, descriptor.partition_types),
        )

    def _existing(self, found: Dataset, descriptor: DatasetDescriptor, if_exists: str) -> Dataset:
        if if_exists == "error":
            raise DatasetExistsError(
                f"Dataset {found.name!r} exists in {self.uri}.",
                hint="Open it, choose another name, or create it with if_exists='open'.",
            )
        if found.descriptor != descriptor:
            raise DatasetExistsError(
                f"Dataset {found.name!r} exists in {self.uri} with another descriptor.",
                hint="Open it without a descriptor, or choose another name.",
            )
        return found

    def _find(self, name: str) -> Dataset | None:
        try:
            return self.open(name)
        except DatasetNotFoundError:
            return None

    def open(self, name: str) -> Dataset:
        """Open a dataset.

        Raises:
            DatasetNotFoundError: There is none of this name; the message names the nearest.
            InvalidNameError: The name is not legal.
            FormatError: Its head cannot be read.

        Cost:
            One GET; two for a msgpack head.
        """
        check_dataset_name(name)
        head = read_head(self._store, name)
        source = Source(self._store, name)
        source.remember(Snapshot(head.state, head.requests))
        return Dataset(source)

    def exists(self, name: str) -> bool:
        """Whether there is a dataset of this name.

        Raises:
            InvalidNameError: The name is not legal.
            FormatError: Its head cannot be read.
        """
        return self._find(name) is not None

    def list(self) -> list[str]:
        """Return the names of all datasets, sorted.

        Cost:
            One LIST of the root, not of the datasets.
        """
        return list_names(self._store)

    def drop(self, name: str) -> None:
        """Delete a dataset with everything that it ever held.

        The head goes first, so that a crash leaves garbage and never a broken dataset. What was
        not there before that, such as a new dataset of the same name, is not touched.

        Raises:
            DatasetNotFoundError: There is none of this name.
            ReadOnlyError: The store cannot be written.

        Cost:
            A LIST of the dataset, and one bulk delete for each thousand objects.
        """
        check_dataset_name(name)
        head = read_head(self._store, name)
        held = [info.key for info in self._store.list(f"{name}/")]
        # A stale second head goes before the true one, or a crash between would revive it.
        others = [format_.key(name) for format_ in HeadFormat if format_.key(name) != head.key]
        self._store.delete(others)
        self._store.delete([head.key])
        # The one key that a new dataset of this name would use again.
        schema_key = kartothek.schema_key(name, head.state.table)
        self._store.delete([key for key in held if key != schema_key])
        if self._find(name) is None:
            self._store.delete([schema_key])


def _head_format(text: str) -> HeadFormat:
    try:
        return HeadFormat(text)
    except ValueError as exc:
        raise InvalidInputError(
            f"Unknown head format {text!r}.", hint="Give 'json' or 'msgpack.zstd'."
        ) from exc


def _first_state(name: str, descriptor: DatasetDescriptor, head_format: HeadFormat) -> State:
    now = dt.datetime.now(dt.UTC)
    return State(
        name=name,
        table=TABLE,
        head_format=head_format,
        descriptor=descriptor,
        partition_keys=tuple(descriptor.partition_types),
        labels=(),
        created_at=now.isoformat(),
        commit_id=uuid.uuid4().hex,
        committed_at=now,
        digest=digest_of(()),
        annotations={},
        indices={},
    )


def open_repository(
    url: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> Repository:
    """Open a storage location.

    Args:
        url: A directory, or `file:///…`, `s3://bucket/prefix`, `gs://…`, `az://…`,
            `memory://name`. It need not exist yet.
        storage_options: Settings of the object store, such as `endpoint` or `region`.

    Raises:
        InvalidInputError: The URL is of no known kind.
        MissingDependencyError: The client for it is not installed.

    Cost:
        No request.

    >>> repository = open_repository("memory://doctest")
    >>> repository.list()
    []
    """
    return Repository(open_store(url, storage_options=storage_options))

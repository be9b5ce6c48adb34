"""Giving up a table whose metadata lies beside the data, under keys that its format numbers.

What is deleted was given up before, in the table's note, with the numbers that were there. Whoever
publishes from then on begins above these. So nothing is deleted that a new table needs, however
long it takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from lakebed.errors import ObjectNotFoundError, StorageError
from lakebed.model.layout import Folder, delta_folder
from lakebed.state.published import Note
from lakebed.store.base import Store
from lakebed.tables.delta import log_names
from lakebed.tables.delta.log_names import LAST_CHECKPOINT
from lakebed.tables.iceberg import metadata_names
from lakebed.tables.iceberg.metadata_names import hint_key, metadata_folder

_ROUNDS = 20  # against publishers, each of which ends a publication

NumberOf = Callable[[str], int | None]
"""Returns the number of the table's version that a key is of; None if it is of none."""


def give_up(
    store: Store,
    note: Note,
    keys: Callable[[], Sequence[str]],
    *,
    number_of: NumberOf,
    first: int,
    pointers: Sequence[str],
) -> None:
    """Give up a table, and delete its metadata.

    Args:
        store: Where it is.
        note: Of the table.
        keys: Lists its metadata.
        number_of: Finds the numbers.
        first: The number that a new table begins with.
        pointers: Keys by which readers begin, which every table uses again.

    Raises:
        StorageError: Others publish it again and again.

    Cost:
        The note, the pointers and a listing; one PUT, and one delete for each thousand objects; at
        the end the listing again. All of it again for each publisher that ends meanwhile.
    """
    is_given_up = False
    for _ in range(_ROUNDS):
        if not is_given_up:
            note.read(is_damage_nothing=True)
        leading, held = etags_of(store, pointers), keys()
        if is_given_up and not held:
            return
        numbers = [number for number in map(number_of, held) if number is not None]
        # And the number that follows: a publisher at work may be about to begin a table with it,
        # whose manifests, which have none, are among what is deleted.
        if not note.give_table_up(max(note.given_up, first - 1, *numbers) + 1):
            if is_given_up:
                return  # it is published again
            continue
        is_given_up = True
        delete_unchanged(store, leading)
        delete(store, [key for key in held if key not in pointers], number_of)
    raise StorageError(
        f"{note.title!r} was not unpublished: others publish it again and again.",
        hint="Turn off its property, or stop who publishes it, and unpublish it again.",
        retryable=True,
    )


def delete(store: Store, keys: Sequence[str], number_of: NumberOf) -> None:
    """Delete metadata of a table, what has the highest number after all else.

    As long as that stands, whoever publishes under the same name begins above it.
    """
    numbered = {key: number for key in keys if (number := number_of(key)) is not None}
    last = max(numbered, key=lambda key: (numbered[key], key), default=None)
    store.delete(key for key in keys if key != last)
    if last is not None:
        store.delete([last])


def pointers_in(dataset: str, keys: Sequence[str]) -> list[str]:
    """Return of the keys of a dataset what its tables have whoever publishes them, notes included."""
    notes = f"{Folder.PUBLISHED.of(dataset)}/"
    leading = (hint_key(dataset), f"{delta_folder(dataset)}/{LAST_CHECKPOINT}")
    return [key for key in keys if key in leading or key.startswith(notes)]


def delete_with_tables(store: Store, dataset: str, keys: Sequence[str]) -> None:
    """Delete objects of a dataset that was dropped; of its tables what has the highest number last."""
    log, metadata = f"{delta_folder(dataset)}/", f"{metadata_folder(dataset)}/"
    store.delete(key for key in keys if not key.startswith((log, metadata)))
    delete(store, [key for key in keys if key.startswith(log)], log_names.number_of)
    delete(store, [key for key in keys if key.startswith(metadata)], metadata_names.number_of)


def etags_of(store: Store, keys: Sequence[str]) -> dict[str, str]:
    """Return the etags of what is there.

    Cost:
        One GET each.
    """
    etags = {}
    for key in keys:
        with contextlib.suppress(ObjectNotFoundError):
            etags[key] = store.get(key).etag
    return etags


def delete_unchanged(store: Store, etags: Mapping[str, str]) -> None:
    """Delete objects that no other writer has replaced since they were looked at.

    Cost:
        One GET and one DELETE each.
    """
    for key, etag in etags.items():
        store.delete_if_match(key, etag=etag)

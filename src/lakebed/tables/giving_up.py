"""Give up a table whose metadata lies beside the data, under numbered keys.

The table's note first records that the numbers in use are given up, and later publishers begin
above them. So a deletion never hits an object of a new table, however long it takes.
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

_ROUNDS = 20  # each is lost to a publisher that has ended a publication

NumberOf = Callable[[str], int | None]
"""Returns the number of the table version that a key belongs to; None for other keys."""


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
        store: The store that holds the table.
        note: The note of the table.
        keys: Lists the keys of the table's metadata.
        number_of: Returns the number in a key.
        first: Number with which a new table begins.
        pointers: Keys with which readers begin; every new table uses them again.

    Raises:
        StorageError: Other publishers keep publishing the table.

    Cost:
        The note, the pointers and a listing; one PUT, and one delete for each thousand objects; at
        the end the listing again. All of it again for each publication that ends meanwhile.
    """
    is_given_up = False
    for _ in range(_ROUNDS):
        if not is_given_up:
            note.read(is_damage_nothing=True)
        leading, held = etags_of(store, pointers), keys()
        if is_given_up and not held:
            return
        numbers = [number for number in map(number_of, held) if number is not None]
        # The number that follows is given up too: a publisher may be about to begin a table with
        # it, and the manifests of that table have no numbers and may be deleted here.
        if not note.give_table_up(max(note.given_up, first - 1, *numbers) + 1):
            if is_given_up:
                return  # it is published again
            continue
        is_given_up = True
        delete_unchanged(store, leading)
        delete(store, [key for key in held if key not in pointers], number_of)
    raise StorageError(
        f"{note.title!r} was not unpublished: other publishers keep publishing it.",
        hint="Remove the property that publishes it, or stop the publisher, and unpublish again.",
        retryable=True,
    )


def delete(store: Store, keys: Sequence[str], number_of: NumberOf) -> None:
    """Delete metadata of a table, the key with the highest number last.

    Publishers under the same name begin above that number for as long as the key exists.
    """
    numbered = {key: number for key in keys if (number := number_of(key)) is not None}
    last = max(numbered, key=lambda key: (numbered[key], key), default=None)
    store.delete(key for key in keys if key != last)
    if last is not None:
        store.delete([last])


def pointers_in(dataset: str, keys: Sequence[str]) -> list[str]:
    """Return those keys of a dataset that every publisher of its tables reuses: pointers, notes."""
    notes = f"{Folder.PUBLISHED.of(dataset)}/"
    leading = (hint_key(dataset), f"{delta_folder(dataset)}/{LAST_CHECKPOINT}")
    return [key for key in keys if key in leading or key.startswith(notes)]


def delete_with_tables(store: Store, dataset: str, keys: Sequence[str]) -> None:
    """Delete objects of a dropped dataset; of each table, the key with the highest number last."""
    log, metadata = f"{delta_folder(dataset)}/", f"{metadata_folder(dataset)}/"
    store.delete(key for key in keys if not key.startswith((log, metadata)))
    delete(store, [key for key in keys if key.startswith(log)], log_names.number_of)
    delete(store, [key for key in keys if key.startswith(metadata)], metadata_names.number_of)


def etags_of(store: Store, keys: Sequence[str]) -> dict[str, str]:
    """Return the etags of the objects that exist.

    Cost:
        One GET each.
    """
    etags = {}
    for key in keys:
        with contextlib.suppress(ObjectNotFoundError):
            etags[key] = store.get(key).etag
    return etags


def delete_unchanged(store: Store, etags: Mapping[str, str]) -> None:
    """Delete objects that no other writer has replaced since their etags were read.

    Cost:
        One GET and one DELETE each.
    """
    for key, etag in etags.items():
        store.delete_if_match(key, etag=etag)

"""Which versions tables of a Hive metastore show: their files stay, whatever else is cleaned up.

A metastore cannot be asked by who cleans up, perhaps on another machine. So a publication notes,
in one small object for each table, which version the table shows, and while it moves both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.store.base import Store

FOLDER = "published"
_SUFFIX = ".json"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a table may show.

    Attributes:
        table: As `database.table`.
        versions: Of the dataset; two while the table moves from one to the other.
    """

    table: str
    versions: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


def note(store: Store, dataset: str, table: str, versions: Iterable[int]) -> None:
    """Note what a table may show from now on.

    Cost:
        One PUT.
    """
    shown = Shown(table=table, versions=tuple(sorted(set(versions))))
    store.put(_key(dataset, table), msgspec.json.encode(shown))


def forget(store: Store, dataset: str, table: str) -> None:
    """Forget a table that is gone."""
    store.delete([_key(dataset, table)])


def find(store: Store, dataset: str, table: str) -> tuple[int, ...]:
    """Return what a table may show; nothing if that is not known.

    Raises:
        CorruptMetadataError: What was noted cannot be read.

    Cost:
        One GET.
    """
    key = _key(dataset, table)
    try:
        return _decode(store.get(key).data, key).versions
    except ObjectNotFoundError:
        return ()


def read(store: Store, dataset: str) -> tuple[Shown, ...]:
    """Return what all tables of a dataset may show.

    Raises:
        CorruptMetadataError: One of the notes cannot be read. Then nobody may say what is dead.

    Cost:
        One LIST, and one GET a table.
    """
    keys = [info.key for info in store.list(f"{dataset}/{FOLDER}/")]
    return tuple(_decode(store.get(key).data, key) for key in keys if key.endswith(_SUFFIX))


def _key(dataset: str, table: str) -> str:
    return f"{dataset}/{FOLDER}/{table}{_SUFFIX}"


def _decode(data: bytes, key: str) -> Shown:
    try:
        return msgspec.json.decode(data, type=Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise CorruptMetadataError(
            f"{key!r} does not say what a table of the metastore shows: {exc}.",
            hint="Publish the table again, or delete the object if there is no such table.",
        ) from exc

"""The directories that a state consists of, and the proof that a table may show them.

Readers of Hive tables read all that lies under a location. So a directory is published only if it
holds the live files of a batch and nothing else: no file that was deleted from the dataset, none
of a task that failed, none that somebody put there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakebed.arrow.footers import THREADS
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError
from lakebed.model.keys import partition_of
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.tables import compatibility
from lakebed.tables.hive.table import Columns, Spec

# What Spark's Parquet reader makes of a file's type when the table has another one, as tested.
_WIDENED = {
    (Kind.INT, Kind.LONG),
    (Kind.INT, Kind.DOUBLE),
    (Kind.FLOAT, Kind.DOUBLE),
    (Kind.DATE, Kind.TIMESTAMP_NTZ),
}


class ScatteredError(InvalidInputError):
    """Directories cannot be shown as they are; written again, their files can.

    Attributes:
        directories: Keys of the directories. Those of one partition are to become one.
    """

    def __init__(self, message: str, *, hint: str, directories: frozenset[str]) -> None:
        super().__init__(message, hint=hint)
        self.directories = directories


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory on storage, and the live files that it holds.

    Attributes:
        key: Of the directory, without final slash.
        files: Keys of its live files.
    """

    key: str
    files: frozenset[str]


def directories_of(
    state: State, columns: Columns, partitions: frozenset[str] | None = None
) -> dict[Spec, Directory]:
    """Return the directory of each partition of the table.

    Args:
        state: Of the dataset.
        columns: Of the table.
        partitions: Paths of the only partitions to look at; None for all.

    Raises:
        InvalidInputError: A partition has several live batches, or several directories, which is
            a `ScatteredError`; or a metastore cannot hold a value.
    """
    labels_by_spec: dict[Spec, list[str]] = {}
    for directory, labels in state.directories().items():
        if partitions is not None and partition_of(directory) not in partitions:
            continue
        spec = Spec.of(state.layout.directory_values(directory), columns.keys)
        labels_by_spec.setdefault(spec, []).extend(labels)
    result: dict[Spec, Directory] = {}
    crowded: dict[Spec, set[str]] = {}
    for spec, labels in labels_by_spec.items():
        keys = [state.layout.key(label) for label in labels]
        homes = {key.rpartition("/")[0] for key in keys}
        if len(homes) > 1:
            crowded[spec] = homes
            continue
        result[spec] = Directory(homes.pop(), frozenset(keys))
    if crowded:
        named = ", ".join(str(spec) or "the whole dataset" for spec in list(crowded)[:5])
        raise ScatteredError(
            f"{counted(len(crowded), 'partition')} of {state.name!r} with several live batches: "
            f"{named}. A partition of a Hive table is one directory.",
            hint="`compact` with gather makes each of them one directory; or publish each batch as a "
            "partition of its own, in mode batches.",
            directories=frozenset[str]().union(*crowded.values()),
        )
    return result


def problems(
    store: Store, state: State, directories: Iterable[Directory], *, at_once: bool = False
) -> dict[str, str]:
    """Say, by directory, why it may not be shown; empty if all may.

    Args:
        store: Where they are.
        state: Of the dataset.
        directories: To look at.
        at_once: Whether to list the whole table with one LIST instead of each directory.

    Cost:
        One LIST a directory, several at a time; or one of the table, a page for each thousand
        files.
    """
    wanted = {directory.key: directory for directory in directories}
    listed = _list_table(store, state, wanted) if at_once else _list_each(store, wanted)
    reasons = {}
    for key, directory in wanted.items():
        missing = sorted(directory.files - listed[key])
        others = sorted(listed[key] - directory.files)
        if missing:
            reasons[key] = f"{len(missing):,} live files are missing, such as {_name(missing[0])}"
        elif others:
            reasons[key] = f"{len(others):,} files are not live, such as {_name(others[0])}"
    return reasons


def _list_each(store: Store, keys: Iterable[str]) -> dict[str, frozenset[str]]:
    def held(key: str) -> tuple[str, frozenset[str]]:
        return key, frozenset(_shown(key, (info.key for info in store.list(f"{key}/"))))

    return dict(at_once(held, tuple(keys), THREADS))


def _list_table(store: Store, state: State, keys: Iterable[str]) -> dict[str, frozenset[str]]:
    files_by_home: dict[str, set[str]] = {key: set() for key in keys}
    for info in store.list(f"{state.name}/"):
        home = info.key
        while "/" in home:
            home = home.rpartition("/")[0]
            if home in files_by_home:
                files_by_home[home].update(_shown(home, [info.key]))
    return {key: frozenset(files) for key, files in files_by_home.items()}


def _shown(directory: str, keys: Iterable[str]) -> Iterator[str]:
    """Leave out what Spark and Hive hide."""
    for key in keys:
        levels = key[len(directory) + 1 :].split("/")
        if not any(level.startswith(("_", ".")) for level in levels):
            yield key


def _name(key: str) -> str:
    return repr(key.rpartition("/")[2])


def check_compatible(store: Store, state: State, labels: Sequence[str]) -> None:
    """Check that Spark's own reader makes of files what Lakebed does.

    Raises:
        InvalidInputError: It would not; the message names the field.

    Cost:
        As `lakebed.tables.compatibility.check_compatible`.
    """
    compatibility.check_compatible(store, state, labels, reader="Hive", widens=_is_widened)


def _is_widened(have: Type, wanted: Type) -> bool:
    if isinstance(have, Decimal) and isinstance(wanted, Decimal):
        return True
    return (
        isinstance(have, Primitive)
        and isinstance(wanted, Primitive)
        and (have.kind, wanted.kind) in _WIDENED
    )

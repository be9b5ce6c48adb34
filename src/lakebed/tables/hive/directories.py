"""The directories of a state, and checks that a table may show them.

Readers of Hive tables read all files under a location. So a directory is published only if it holds
the live files of a batch and nothing else: no file that was deleted from the dataset, that a failed
task left behind, or that another tool put there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.arrow.footers import THREADS
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError
from lakebed.model.keys import schema_number_of, split_label
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.tables import compatibility
from lakebed.tables.hive.table import Columns, Spec

# Types in a file that Spark's Parquet reader widens to another type of the table, as tested.
_WIDENED = {
    (Kind.INT, Kind.LONG),
    (Kind.INT, Kind.DOUBLE),
    (Kind.FLOAT, Kind.DOUBLE),
    (Kind.DATE, Kind.TIMESTAMP_NTZ),
}


class ScatteredError(InvalidInputError):
    """Directories that a table cannot show unless their files are rewritten.

    Attributes:
        directories: Keys of the directories. Those of one partition must become one.
    """

    def __init__(self, message: str, *, hint: str, directories: frozenset[str]) -> None:
        super().__init__(message, hint=hint)
        self.directories = directories


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory on storage, and the live files that it holds.

    Attributes:
        key: Key of the directory, without final slash.
        files: Keys of its live files.
        labels: Labels of these files.
    """

    key: str
    files: frozenset[str]
    labels: tuple[str, ...] = ()


def directories_of(
    state: State, columns: Columns, partitions: frozenset[str] | None = None
) -> dict[Spec, Directory]:
    """Return the directory of each partition of the table.

    Args:
        state: State of the dataset.
        columns: Columns of the table.
        partitions: Paths of the partitions to include; None for all.

    Raises:
        InvalidInputError: A partition has several live batches, or several directories (a
            `ScatteredError`); or a metastore cannot hold a value.
    """
    labels_by_spec: dict[Spec, list[str]] = {}
    for directory, labels in _by_directory(state, partitions).items():
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
        result[spec] = Directory(homes.pop(), frozenset(keys), tuple(labels))
    if crowded:
        named = ", ".join(str(spec) or "the whole dataset" for spec in list(crowded)[:5])
        raise ScatteredError(
            f"{counted(len(crowded), 'partition')} of {state.name!r} with several live batches: "
            f"{named}. A partition of a Hive table must be one directory.",
            hint="`compact` with gather makes each of them one directory; or publish each batch as "
            "its own partition, in mode batches.",
            directories=frozenset[str]().union(*crowded.values()),
        )
    return result


def _by_directory(state: State, partitions: frozenset[str] | None) -> Mapping[str, Sequence[str]]:
    """Return the labels by directory, of some partitions or of all."""
    if partitions is None:
        return state.directories()
    directories: dict[str, list[str]] = {}
    for label in state.live.of(partitions):
        directories.setdefault(split_label(label)[0], []).append(label)
    return directories


def problems(
    store: Store, state: State, directories: Iterable[Directory], *, at_once: bool = False
) -> dict[str, str]:
    """Return, by directory key, why a table cannot show it; empty if it can show all.

    Args:
        store: The store that holds the directories.
        state: State of the dataset.
        directories: Directories to check.
        at_once: List the whole dataset at once instead of each directory.

    Cost:
        One LIST for each directory, several at a time; or one LIST of the dataset for each thousand
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
    """Yield the keys that Spark and Hive do not hide."""
    for key in keys:
        levels = key[len(directory) + 1 :].split("/")
        if not any(level.startswith(("_", ".")) for level in levels):
            yield key


def _name(key: str) -> str:
    return repr(key.rpartition("/")[2])


def check_compatible(store: Store, state: State, labels: Sequence[str]) -> None:
    """Check that Spark's own reader, or Hive's reader of Avro, reads files as Lakebed does.

    Raises:
        InvalidInputError: A file would read differently; the message names the field.

    Cost:
        As `lakebed.tables.compatibility.check_compatible`.
    """
    if state.descriptor.format == "avro":
        # Adopted files were read by their own schemas when they were adopted, as Hive reads them.
        newest = state.lineage.number
        own = [label for label in labels if schema_number_of(label, newest=newest) is not None]
        compatibility.check_compatible(
            store, state, own, reader="Hive", widens=lambda _have, _wanted: False
        )
        return
    compatibility.check_compatible(store, state, labels, reader="Hive", widens=_is_widened)


def _is_widened(have: Type, wanted: Type) -> bool:
    if isinstance(have, Decimal) and isinstance(wanted, Decimal):
        return True
    return (
        isinstance(have, Primitive)
        and isinstance(wanted, Primitive)
        and (wanted.holds(have) or (have.kind, wanted.kind) in _WIDENED)
    )

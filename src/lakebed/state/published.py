"""Notes of publications: the versions that tables of other formats show, whose files cleanups keep.

A cleanup may run on a machine that cannot reach the metastore or catalog. So publications record,
in one small object for each table, the versions that the table may show. A publisher adds its
version to the note before it changes the table, and ends its entry when it has finished. So the
note covers what the table shows at any moment, and each publisher learns whether it was alone.

Readers of Delta and Iceberg tables stay on the version that they have opened. So the notes of these
tables also record until when a version was shown: for the retention of a cleanup, its files stay.

The log of such a table lies beside the data, under keys that the format numbers. A table that is
unpublished is first given up in its note, with all numbers so far: the note stays, and the next
table starts above them. So a slow deletion of the old log never meets a key of the new one.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.model import publishing
from lakebed.model.layout import Folder
from lakebed.model.publishing import PublicationTarget, TableKind
from lakebed.state.state import State
from lakebed.store.base import Store

LEASE = dt.timedelta(hours=6)  # a publisher that takes longer is treated as dead
LEASE_MARGIN = dt.timedelta(minutes=15)  # for clocks that differ, and the last call of a publisher
_SUFFIX = ".json"
_SPAN_S = 3600  # versions that left a table within the same hour share a record
_AGE_A_SPAN = 8  # and those that left it within an eighth of the time since then
_LONGEST_RETENTION = dt.timedelta(days=366)  # of readers, and so of the records

_NUMBER = re.compile(r"[0-9]{1,18}")  # in a table's own log; both formats use 63 bits for it

_Version = Annotated[int, msgspec.Meta(ge=0)]


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher that changes a table, or that died while it did.

    Attributes:
        version: Version of the dataset that it brings the table to.
        until: Time after which it changes nothing.
    """

    version: _Version
    until: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that a table no longer shows, but that readers may still hold.

    Attributes:
        since: The lowest of them; higher ones may have been shown, too.
        at: Time when the last of them was shown.
    """

    since: _Version
    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a note: the versions that a table may show.

    Attributes:
        table: Name as `database.table`; for a Delta or Iceberg table, its name in messages.
        versions: Versions of the dataset; several while the table changes, or after that failed.
        publishers: The active publishers, by id.
        kind: Kind of the table.
        left: Versions that it showed before, oldest first.
        place: Position in the table's own log where the publisher searches first.
        given_up: The highest number of that log that was given up; -1 if none was.
    """

    table: str
    versions: tuple[_Version, ...]
    publishers: dict[str, Publisher] = msgspec.field(default_factory=dict)
    kind: TableKind = "hive"
    left: tuple[Left, ...] = ()
    place: str = ""
    given_up: Annotated[int, msgspec.Meta(ge=-1, le=10**18)] = -1

    @property
    def is_gone(self) -> bool:
        """True if the table was given up, and no other was published since."""
        return self.given_up >= 0 and not self.versions

    @property
    def title(self) -> str:
        """The name of the table in messages."""
        return self.table if self.kind == "hive" else f"{self.kind.capitalize()} {self.table}"

    def held_since(self, cutoff: dt.datetime) -> int | None:
        """Return the lowest version that a reader may hold that started after `cutoff`.

        None if it can only hold versions that the table shows.
        """
        return min((left.since for left in self.left if left.at > cutoff), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of another format that shows a dataset, as publications have recorded it.

    Attributes:
        kind: Kind of the table.
        table: Name of the table; empty for a table beside the data files, which has none.
        version: Version of the dataset that the table shows; the oldest of several. None if the
            table was never published, or if its note cannot be read.
        latest_version: The current version of the dataset.
        is_automatic: Whether the properties ask for a publication after each commit.
    """

    kind: TableKind
    table: str
    version: int | None
    latest_version: int
    is_automatic: bool

    @property
    def title(self) -> str:
        """The kind and the name of the table."""
        return f"{self.kind} {self.table}".rstrip()

    @property
    def is_in_step(self) -> bool:
        """True if it shows the current version; a new dataset need not be published."""
        return (self.version or 0) == self.latest_version

    @property
    def is_stale(self) -> bool:
        """True if it lacks commits that should have been published to it."""
        return self.is_automatic and not self.is_in_step

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.title} was never published"
        behind = "" if self.is_in_step else f" of {self.latest_version}"
        return f"{self.title} shows version {self.version}{behind}"

    def _row_(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "table": self.table or "-",
            "version": self.version,
            "in step": self.is_in_step,
            "after each commit": self.is_automatic,
        }


class OldMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Old metadata of tables beside the data, as a cleanup finds it.

    Attributes:
        dead: Keys of objects that no reader can need any more.
        unreadable: Objects whose references are unknown, with the reason by key: they stay, and so
            does everything that depends on them.
    """

    dead: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __or__(self, other: OldMetadata) -> OldMetadata:
        return OldMetadata(
            dead=self.dead | other.dead, unreadable={**self.unreadable, **other.unreadable}
        )


class Note:
    """The note of one table, as one publisher reads and changes it.

    A publisher calls `read`, looks at the table, calls `begin`, changes the table, and calls
    `finish` or `give_up`. Nothing is locked between these calls: they detect what others did.
    """

    def __init__(
        self, store: Store, dataset: str, table: str, *, kind: TableKind = "hive", name: str = ""
    ) -> None:
        """Open the note of a table.

        Args:
            store: The store that holds the dataset.
            dataset: Name of the dataset.
            table: Name of the table in messages.
            kind: Kind of the table.
            name: Name of the note, if it differs from that of the table.
        """
        self._store = store
        self._key = _key(dataset, name or table)
        self._table = table
        self._kind: TableKind = kind
        self._own = uuid.uuid4().hex
        self._version = 0
        self._until: dt.datetime | None = None
        self._versions: tuple[int, ...] = ()
        self._others: Mapping[str, Publisher] = {}
        self._left: tuple[Left, ...] = ()
        self._etag: str | None = None
        self._is_changed = False
        self.place = ""  # as it was read; the publisher may change it before `finish`
        self.given_up = -1

    def read(self, *, is_damage_nothing: bool = False) -> None:
        """Read the note again; `begin` and `is_disturbed` detect changes since then.

        Args:
            is_damage_nothing: Treat a note that cannot be read as empty.

        Raises:
            CorruptMetadataError: The note cannot be read.

        Cost:
            One GET.
        """
        shown, self._etag = self._get(is_damage_nothing=is_damage_nothing)
        now = dt.datetime.now(dt.UTC)
        self._versions = shown.versions
        self._left = shown.left
        self.place, self.given_up = shown.place, shown.given_up
        self._others = {
            publisher_id: publisher
            for publisher_id, publisher in shown.publishers.items()
            if publisher_id != self._own and publisher.until > now
        }
        self._is_changed = False

    @property
    def title(self) -> str:
        """The name of the table in messages."""
        return self._shown((), {}).title

    @property
    def is_there(self) -> bool:
        """True if there was a note when it was read, and the table was not given up."""
        return self._etag is not None and (bool(self._versions) or self.given_up < 0)

    def shows_only(self, version: int) -> bool:
        """Return whether the table showed a version and nothing else when the note was read."""
        return self._versions == (version,)

    def forget(self) -> None:
        """Delete the note of a table that is gone, if no new table can use its keys again."""
        self._store.delete([self._key])

    def give_table_up(self, number: int) -> bool:
        """Record that the table is given up, with its own log up to a number.

        The versions of active publishers stay in the note; they learn of this when they finish.

        Returns:
            False, without a change, if the note has changed since it was read or written.

        Cost:
            One PUT.
        """
        self.given_up = number
        self.place, self._left = "", ()
        versions = {publisher.version for publisher in self._others.values()}
        return self._put(self._shown(versions, self._others))

    def begin(self, version: int) -> bool:
        """Record the version that the table may show from now on, besides the earlier ones.

        Returns:
            False, without a change, if another publisher has begun or ended since `read`.

        Cost:
            One PUT.
        """
        own = Publisher(version=version, until=dt.datetime.now(dt.UTC) + LEASE)
        self._version, self._until = version, own.until
        wanted = self._shown((*self._versions, version), {**self._others, self._own: own})
        if self._put(wanted):
            self._versions = wanted.versions
            return True
        shown, etag = self._get()
        if shown == wanted:
            self._etag = etag  # it is ours, from a put whose answer was lost
            self._versions = wanted.versions
            return True
        self._is_changed = True
        return False

    def finish(self) -> bool:
        """Record that the table was brought to the version.

        Returns:
            Whether the caller must look at the table again: it may have been changed meanwhile, and
            no other publisher is left to look at it.

        Cost:
            One PUT; some more if others publish too.
        """
        # An unchanged note names every other publisher that may have changed the table meanwhile.
        versions = {self._version, *(publisher.version for publisher in self._others.values())}
        no_longer_shown = set(self._versions) - versions
        self._left = self._with_left(no_longer_shown) if self._kind != "hive" else ()
        if self._put(self._shown(versions, self._others)):
            return False
        given_up = self.given_up
        return not self._end() or self.given_up != given_up

    def give_up(self) -> None:
        """Record that the publication failed; the table may show parts of the version.

        Cost:
            One GET and one PUT; some more if others publish too.
        """
        self._end()

    @property
    def deadline(self) -> dt.datetime | None:
        """Time after which the publisher must change nothing; None before `begin`."""
        return None if self._until is None else self._until - LEASE_MARGIN

    def is_disturbed(self) -> bool:
        """Return whether other publishers are active, or the note has changed since `read`.

        Cost:
            Nothing, or one GET.
        """
        if not self._others and not self._is_changed:
            _, etag = self._get()
            self._is_changed = etag != self._etag
        return bool(self._others) or self._is_changed

    def _end(self) -> bool:
        """Remove the publisher, keep all versions, and return whether others are active."""
        while True:
            shown, etag = self._get()
            self._is_changed = self._is_changed or etag != self._etag
            self._etag = etag
            others = {
                publisher_id: publisher
                for publisher_id, publisher in shown.publishers.items()
                if publisher_id != self._own
            }
            self._left, self.given_up = shown.left, max(shown.given_up, self.given_up)
            self.place = shown.place or self.place
            wanted = self._shown((*shown.versions, self._version), others)
            if wanted == shown or self._put(wanted):
                now = dt.datetime.now(dt.UTC)
                return any(publisher.until > now for publisher in others.values())

    def _with_left(self, no_longer_shown: Collection[int]) -> tuple[Left, ...]:
        """Return the versions that readers may hold, with those that the table no longer shows.

        The versions that left the table last have a record of their own. So a cleanup, whose commit
        is published as well, does not keep all that left the table within the hour before it.
        """
        now = dt.datetime.now(dt.UTC)
        left = [one for one in self._left if one.at > now - _LONGEST_RETENTION]
        if no_longer_shown:
            left.append(Left(since=min(no_longer_shown), at=now))
        spans: dict[tuple[int, int], Left] = {}
        for one in left[:-1]:
            span = _span_of(one.at, now)
            known = spans.get(span, one)
            spans[span] = Left(since=min(known.since, one.since), at=max(known.at, one.at))
        return (*spans.values(), *left[-1:])

    def _shown(self, versions: Iterable[int], publishers: Mapping[str, Publisher]) -> Shown:
        return Shown(
            table=self._table,
            versions=tuple(sorted(set(versions))),
            publishers=dict(publishers),
            kind=self._kind,
            left=self._left,
            place=self.place,
            given_up=self.given_up,
        )

    def _get(self, *, is_damage_nothing: bool = False) -> tuple[Shown, str | None]:
        try:
            stored = self._store.get(self._key)
        except ObjectNotFoundError:
            return self._shown((), {}), None
        try:
            return _decode(stored.data, self._key), stored.etag
        except CorruptMetadataError:
            if not is_damage_nothing:
                raise
            return Shown(table=self._table, versions=(), kind=self._kind), stored.etag

    def _put(self, shown: Shown) -> bool:
        """Write the note if it is unchanged since it was read; return False if not."""
        data = msgspec.json.encode(shown)
        try:
            if self._etag is None:
                self._etag = self._store.create(self._key, data)
            else:
                self._etag = self._store.replace(self._key, data, if_match=self._etag)
        except (ObjectExistsError, PreconditionFailedError):
            return False
        return True


def forget(store: Store, dataset: str, table: str) -> None:
    """Delete the note of a table that is gone."""
    store.delete([_key(dataset, table)])


def read(store: Store, dataset: str) -> tuple[Shown, ...]:
    """Return the notes of all tables of a dataset.

    Raises:
        CorruptMetadataError: One of the notes cannot be read. Then no file is known to be dead.

    Cost:
        One LIST, and one GET a table.
    """
    notes = tuple(note for _, note in read_each(store, dataset))
    for note in notes:
        if isinstance(note, CorruptMetadataError):
            raise note
    return tuple(note for note in notes if isinstance(note, Shown))


def read_each(store: Store, dataset: str) -> Iterator[tuple[str, Shown | CorruptMetadataError]]:
    """Yield each note or its error, with its key; omit tables that were given up."""
    keys = [info.key for info in store.list(f"{Folder.PUBLISHED.of(dataset)}/")]
    for key in keys:
        if not key.endswith(_SUFFIX):
            continue
        try:
            shown = _decode(store.get(key).data, key)
        except ObjectNotFoundError:
            continue  # its table was dropped meanwhile
        except CorruptMetadataError as exc:
            yield key, exc
            continue
        if not shown.is_gone:
            yield key, shown


def tables(store: Store, state: State) -> tuple[PublishedTable, ...]:
    """Return the tables that show a dataset, and those that its properties name.

    Args:
        store: The store that holds the dataset.
        state: The current state of the dataset.

    Cost:
        As `read`.
    """
    return tables_of(state, (note for _, note in read_each(store, state.name)))


def tables_of(
    state: State, notes: Iterable[Shown | CorruptMetadataError]
) -> tuple[PublishedTable, ...]:
    """Return the tables that show a dataset by its notes, and those that its properties name."""
    versions: dict[tuple[TableKind, str], int | None] = {}
    wanted = {_identity_of(target) for target in publishing.targets(state.descriptor.properties)}
    for note in notes:
        if isinstance(note, Shown):
            versions[_identity(note, state.name)] = min(note.versions, default=None)
    return tuple(
        PublishedTable(
            kind=identity[0],
            table=identity[1],
            version=versions.get(identity),
            latest_version=state.version,
            is_automatic=identity in wanted,
        )
        for identity in sorted({*wanted, *versions})
    )


def _identity_of(target: PublicationTarget) -> tuple[TableKind, str]:
    try:
        return target.kind, target.table
    except InvalidInputError:
        return target.kind, target.options["table"]  # an older release has accepted the name


def _identity(note: Shown, dataset: str) -> tuple[TableKind, str]:
    """Return the kind and the name of a table; a table beside the data has an empty name."""
    return note.kind, "" if note.kind != "hive" and note.table == dataset else note.table


def number_at(place: str) -> int | None:
    """Return the number that a position begins with; None if it begins with none."""
    match = _NUMBER.fullmatch(place.partition(" ")[0])
    return int(match[0]) if match else None


def _span_of(moment: dt.datetime, now: dt.datetime) -> tuple[int, int]:
    """Return the span of a moment, whose versions share a record; older spans are longer.

    Lengths double, so each span lies within the longer span that replaces it later.
    """
    age = max(0, int((now - moment).total_seconds()))
    doublings = max(0, (age // (_SPAN_S * _AGE_A_SPAN)).bit_length() - 1)
    length = _SPAN_S << doublings
    return length, int(moment.timestamp()) // length


def _key(dataset: str, table: str) -> str:
    return Folder.PUBLISHED.of(dataset, f"{table}{_SUFFIX}")


def _decode(data: bytes, key: str) -> Shown:
    try:
        return from_json(data, Shown)
    except UNREADABLE as exc:
        raise CorruptMetadataError(
            f"The publication note {key!r} cannot be read: {exc}.",
            hint="Delete the object, and publish the table again if there is one.",
        ) from exc

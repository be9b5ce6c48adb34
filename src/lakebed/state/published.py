"""What tables of other formats show: those files stay, whatever else is cleaned up.

A metastore or a catalog cannot be asked by who cleans up, perhaps on another machine. So
publications note, in one small object for each table, which versions it may show. A publisher says
there what it is about to show before it changes the table, and takes that back when it has ended.
So the note covers what the table shows at any moment, and each publisher learns whether it was
alone with it.

Readers of Delta and Iceberg tables go on with the version that they have opened. So the notes of
these also tell until when a version was shown: for the retention of a cleanup, its files stay.

The log of such a table lies beside the data, under keys that the format numbers. A table that is
unpublished is given up by its note first, with all numbers so far: that note stays, and the next
table begins above them. So whoever is slow to delete what was given up meets nothing that is new.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

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

LEASE = dt.timedelta(hours=6)  # then a publisher that has not ended is taken for dead
LEASE_MARGIN = dt.timedelta(minutes=15)  # clocks that differ, and the last call of a publisher
_SUFFIX = ".json"
_SPAN_S = 3600  # versions that left a table within the same hour are told together
_AGE_A_SPAN = 8  # and within an eighth of the time that has gone by since
_LONGEST_RETENTION = dt.timedelta(days=366)  # of readers, and so of what is told

_NUMBER = re.compile(r"[0-9]{1,18}")  # of a table's own log; both formats have 63 bits for it

_Version = Annotated[int, msgspec.Meta(ge=0)]


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    """One that changes a table, or died while it did.

    Attributes:
        version: Of the dataset, which it brings the table to.
        until: From then on it changes nothing.
    """

    version: _Version
    until: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that a table does not show any more, and that readers may still hold.

    Attributes:
        since: The lowest of them; those above it may have been shown, too.
        at: When the last of them was shown.
    """

    since: _Version
    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a table may show.

    Attributes:
        table: As `database.table`; of a Delta or Iceberg table, what it is called in messages.
        versions: Of the dataset; several while the table moves, or after it failed to.
        publishers: Those at work, each by an id of its own.
        kind: Of the table.
        left: What it has shown before, oldest first.
        place: Where the publisher found itself in the table's own log, to look there first.
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
        """Whether the table was given up, and no other was published since."""
        return self.given_up >= 0 and not self.versions

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return self.table if self.kind == "hive" else f"{self.kind.capitalize()} {self.table}"

    def held_since(self, cutoff: dt.datetime) -> int | None:
        """Return the lowest version that a reader may hold who began after `cutoff`.

        None if there is none but those that the table shows.
        """
        return min((left.since for left in self.left if left.at > cutoff), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of another format that shows a dataset, as publications have noted it.

    Attributes:
        kind: Of the table.
        table: Its name; empty where it lies beside the data files and has none.
        version: Of the dataset, which the table shows; of several, the oldest. None if it was
            never published, or if its note cannot be read.
        latest_version: The current version of the dataset.
        is_automatic: Whether each commit is to be published to it, as properties say.
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
        """Whether it shows the current version; nothing need be published of a new dataset."""
        return (self.version or 0) == self.latest_version

    @property
    def is_stale(self) -> bool:
        """Whether it lacks commits that should have been published to it."""
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
    """What a cleanup makes of the metadata of tables beside the data.

    Attributes:
        dead: Keys of what no reader can need any more.
        unreadable: By key, why what it names is not known: it stays, with all that hangs on it.
    """

    dead: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __or__(self, other: OldMetadata) -> OldMetadata:
        return OldMetadata(
            dead=self.dead | other.dead, unreadable={**self.unreadable, **other.unreadable}
        )


class Note:
    """The note of one table, as one publisher sees and changes it.

    It says `read`, looks at the table, says `begin`, changes the table, and says `finish` or
    `give_up`. Between these calls nothing is locked: they tell what others did.
    """

    def __init__(
        self, store: Store, dataset: str, table: str, *, kind: TableKind = "hive", name: str = ""
    ) -> None:
        """Take part in the note of a table.

        Args:
            store: Where the dataset is.
            dataset: Its name.
            table: What it is called in messages.
            kind: Of the table.
            name: Of the note, if not that of the table.
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
        self.place = ""  # as it was read; who publishes may change it before `finish`
        self.given_up = -1

    def read(self, *, is_damage_nothing: bool = False) -> None:
        """Read it anew; what `begin` and `is_disturbed` tell is about the time since.

        Args:
            is_damage_nothing: Take what cannot be read for an empty note.

        Raises:
            CorruptMetadataError: What was noted cannot be read.

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
        """What the table is called in messages."""
        return self._shown((), {}).title

    @property
    def is_there(self) -> bool:
        """Whether there was a note when it was read, and the table was not given up."""
        return self._etag is not None and (bool(self._versions) or self.given_up < 0)

    def shows_only(self, version: int) -> bool:
        """Return whether the table showed a version and nothing else when the note was read."""
        return self._versions == (version,)

    def forget(self) -> None:
        """Forget a table that is gone, of which no new one uses a key again."""
        self._store.delete([self._key])

    def give_table_up(self, number: int) -> bool:
        """Note that the table is given up, with all that its own log has up to a number.

        What publishers at work are about to show stays noted; they learn of this when they end.

        Returns:
            False, and nothing is noted, if the note has changed since it was read or written.

        Cost:
            One PUT.
        """
        self.given_up = number
        self.place, self._left = "", ()
        versions = {publisher.version for publisher in self._others.values()}
        return self._put(self._shown(versions, self._others))

    def begin(self, version: int) -> bool:
        """Note what the table may show from now on, besides what it did.

        Returns:
            False, and nothing is noted, if another publisher has begun or ended since `read`.

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
        """Note that the table was brought to the version.

        Returns:
            Whether it is on nobody else to look at the table again, though somebody may have
            changed it meanwhile.

        Cost:
            One PUT; some more if others publish too.
        """
        # Who else has changed the table since it was looked at is in the note, if that is as it was.
        versions = {self._version, *(publisher.version for publisher in self._others.values())}
        gone = set(self._versions) - versions
        self._left = self._with_left(gone) if self._kind != "hive" else ()
        if self._put(self._shown(versions, self._others)):
            return False
        given_up = self.given_up
        return not self._end() or self.given_up != given_up

    def give_up(self) -> None:
        """Note that the table may show something of the version, and that no more comes of it.

        Cost:
            One GET and one PUT; some more if others publish too.
        """
        self._end()

    @property
    def deadline(self) -> dt.datetime | None:
        """From then on a publisher that has begun may change nothing more."""
        return None if self._until is None else self._until - LEASE_MARGIN

    def is_disturbed(self) -> bool:
        """Return whether others publish, or have since `read`.

        Cost:
            Nothing, or one GET.
        """
        if not self._others and not self._is_changed:
            _, etag = self._get()
            self._is_changed = etag != self._etag
        return bool(self._others) or self._is_changed

    def _end(self) -> bool:
        """Take the publisher out, leave all versions in, and return whether others are at work."""
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

    def _with_left(self, gone: Collection[int]) -> tuple[Left, ...]:
        """Return what readers may hold, with versions that the table shows no more.

        What left the table last is told by itself. So a cleanup, whose commit is published, too,
        does not keep all that left the table within the hour before it.
        """
        now = dt.datetime.now(dt.UTC)
        left = [one for one in self._left if one.at > now - _LONGEST_RETENTION]
        if gone:
            left.append(Left(since=min(gone), at=now))
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
        """Write it if nobody has since it was read."""
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
    """Forget a table that is gone."""
    store.delete([_key(dataset, table)])


def read(store: Store, dataset: str) -> tuple[Shown, ...]:
    """Return what all tables of a dataset may show.

    Raises:
        CorruptMetadataError: One of the notes cannot be read. Then nobody may say what is dead.

    Cost:
        One LIST, and one GET a table.
    """
    notes = tuple(note for _, note in read_each(store, dataset))
    for note in notes:
        if isinstance(note, CorruptMetadataError):
            raise note
    return tuple(note for note in notes if isinstance(note, Shown))


def read_each(store: Store, dataset: str) -> Iterator[tuple[str, Shown | CorruptMetadataError]]:
    """Yield each note with its key, or why it cannot be read; none of tables that were given up."""
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
        store: Where the dataset is.
        state: What its head says.

    Cost:
        As `read`.
    """
    versions: dict[tuple[TableKind, str], int | None] = {}
    wanted = {_identity_of(target) for target in publishing.targets(state.descriptor.properties)}
    for _, note in read_each(store, state.name):
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
    """Return the kind of a table and its name; what lies beside the data has none of its own."""
    return note.kind, "" if note.kind != "hive" and note.table == dataset else note.table


def number_at(place: str) -> int | None:
    """Return the number that a place begins with; None if it begins with none."""
    match = _NUMBER.fullmatch(place.partition(" ")[0])
    return int(match[0]) if match else None


def _span_of(moment: dt.datetime, now: dt.datetime) -> tuple[int, int]:
    """Return what moments share that are told together: the longer ago, the longer it is.

    Spans double, so that one that is told together lies within one that will be.
    """
    age = max(0, int((now - moment).total_seconds()))
    doublings = max(0, (age // (_SPAN_S * _AGE_A_SPAN)).bit_length() - 1)
    length = _SPAN_S << doublings
    return length, int(moment.timestamp()) // length


def _key(dataset: str, table: str) -> str:
    return Folder.PUBLISHED.of(dataset, f"{table}{_SUFFIX}")


def _decode(data: bytes, key: str) -> Shown:
    try:
        return msgspec.json.decode(data, type=Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise CorruptMetadataError(
            f"{key!r} does not say what a published table shows: {exc}.",
            hint="Delete the object, and publish the table again if there is one.",
        ) from exc

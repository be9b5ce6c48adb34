"""The log of a Delta table on storage: the keys and the contents of its commits.

A commit is one object, created only if there is none with its number; heads are replaced under the
same kind of condition. So two publishers cannot make the same version, and a reader sees a whole
commit or nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, ObjectExistsError, ObjectNotFoundError
from lakebed.model.layout import delta_folder
from lakebed.store.base import Store
from lakebed.tables import pointers
from lakebed.tables.delta.log_names import (
    CHECKPOINT,
    COMMIT,
    LAST_CHECKPOINT,
    MOST,
    SIDECARS,
    number_in,
    number_of,
)

_FIRST_LINE_BYTES = 8192  # ours are far shorter
_ASKED = 5  # commits that are read to find out who wrote a log
_REMEDY = "Publish with repair, which begins the log again; the dataset itself is not affected."


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user metadata of a commit that Lakebed made.

    Attributes:
        dataset: Name of the dataset.
        created_at: Time at which the dataset was created, as in its head.
        version: Version of the dataset that the table shows after this commit.
        commit_id: Id of the commit that made this version of the dataset.
        digest: Digest of the table's metadata, see `lakebed.tables.delta.delta_schema`.
        schema: Number of the dataset's schema.
        table_id: Id of the Delta table.
        created_ms: Time at which the Delta table was created, in epoch milliseconds.
        checkpoint: Number of the last commit after which a checkpoint was due; -1 for none.
        checkpoint_digest: Digest of the checkpoint after this commit, if one is due.
        begins_at: Number of the commit that the log begins with. Readers need nothing before it.
            They need the checkpoint after it, unless the number is 0.
        has_sidecars: Whether the files of checkpoints are in sidecars from this commit on.
    """

    dataset: str
    created_at: str
    version: Annotated[int, msgspec.Meta(ge=0)]
    commit_id: str
    digest: str
    schema: int
    table_id: str
    created_ms: int
    checkpoint: Annotated[int, msgspec.Meta(ge=-1, lt=MOST)] = -1
    checkpoint_digest: str = ""
    begins_at: Annotated[int, msgspec.Meta(ge=0, lt=MOST)] = 0
    has_sidecars: bool = False

    def to_text(self) -> str:
        """Return the user metadata of a commit."""
        return msgspec.json.encode({"lakebed": self}).decode()


class _Marked(msgspec.Struct):
    lakebed: Mark


class _Pointer(msgspec.Struct):
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommit:
    """A commit of the log.

    Attributes:
        number: Version of the Delta table.
        mark: Its user metadata, if Lakebed made the commit.
        description: Its operation and engine, for messages.
    """

    number: int
    mark: Mark | None
    description: str = ""


@dataclass(slots=True)
class LiveFiles:
    """The state of a log after a commit.

    Attributes:
        files: The live files: path as in the log to deletion vector, or None.
        metadata: The last `metaData`.
        protocol: The last `protocol`.
    """

    files: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)

    def play(self, action: dict[str, Any]) -> None:
        """Apply the action of one line."""
        for kind, body in action.items():
            match kind:
                case "add":
                    self.files[body["path"]] = body.get("deletionVector")
                case "remove":
                    self.files.pop(body["path"], None)
                case "metaData":
                    self.metadata = body
                case "protocol":
                    self.protocol = body


class Log:
    """The log of the Delta table of a dataset."""

    def __init__(self, store: Store, dataset: str) -> None:
        self._store = store
        self.folder = delta_folder(dataset)

    def key(self, number: int) -> str:
        """Return the key of a commit."""
        return f"{self.folder}/{number:020d}.json"

    def checkpoint_key(self, number: int) -> str:
        """Return the key of the checkpoint after a commit."""
        return f"{self.folder}/{number:020d}.checkpoint.parquet"

    def sidecar_key(self, name: str) -> str:
        """Return the key of a part of a checkpoint."""
        return f"{self.folder}/{SIDECARS}/{name}"

    @property
    def pointer(self) -> str:
        """The key of the pointer to the last checkpoint."""
        return f"{self.folder}/{LAST_CHECKPOINT}"

    def keys(self) -> list[str]:
        """Return the keys of all objects of the log.

        Cost:
            One LIST for each thousand.
        """
        return [info.key for info in self._store.list(f"{self.folder}/")]

    def commits_since(self, number: int) -> tuple[LogCommit, ...]:
        """Return a commit and all later ones; nothing if the commit is missing.

        Cost:
            One GET of some KiB for each of them, and one more.
        """
        commits: list[LogCommit] = []
        while (commit := self.read(number + len(commits))) is not None:
            commits.append(commit)
        return tuple(commits)

    def last(self, keys: Iterable[str]) -> LogCommit | None:
        """Return the last commit; None if there is none.

        Args:
            keys: Keys of the objects of the log.

        Cost:
            One GET.
        """
        numbers = _numbers(keys, COMMIT)
        return self.read(max(numbers)) if numbers else None

    def next_number(self) -> int:
        """Return the number that follows all commits and checkpoints of the log.

        Raises:
            CorruptMetadataError: One has a number that no log reaches.

        Cost:
            One LIST for each thousand objects of the log.
        """
        keys = self.keys()
        return max((*_numbers(keys, COMMIT), *_numbers(keys, CHECKPOINT)), default=-1) + 1

    def is_ours(self, keys: Iterable[str]) -> bool:
        """Return whether Lakebed made one of the newest or oldest commits.

        Args:
            keys: Keys of the objects of the log.

        Cost:
            One GET for a log of ours; up to ten for another log.
        """
        numbers = {number for number in map(number_of, keys) if number is not None}
        newest = sorted(numbers, reverse=True)
        commits = map(self.read, dict.fromkeys((*newest[:_ASKED], *newest[-_ASKED:])))
        return any(commit is not None and commit.mark is not None for commit in commits)

    def trouble(self, tip: LogCommit, mark: Mark) -> str:
        """Return why readers cannot read the log from its beginning; empty if they can.

        Args:
            tip: The last commit.
            mark: The mark of the last commit that Lakebed made.

        Cost:
            One GET and one HEAD; one HEAD more without a checkpoint.
        """
        led_to = pointers.read(self._store, self.pointer)
        if led_to is not None:
            number = checkpoint_in(led_to)
            if number is None:
                return f"{self.pointer!r} cannot be read."
            is_within = mark.begins_at <= number <= tip.number
            if is_within and self.has_checkpoint(number):
                return ""
            return f"{self.pointer!r} leads to checkpoint {number}, which the log does not have."
        if mark.checkpoint >= mark.begins_at and self.has_checkpoint(mark.checkpoint):
            return ""
        if mark.begins_at:
            return f"It lacks {self.checkpoint_key(mark.begins_at)!r}, with which it begins."
        return "" if self._exists(self.key(0)) else f"It lacks {self.key(0)!r}."

    def has_checkpoint(self, number: int) -> bool:
        """Return whether the checkpoint after a commit is there.

        Cost:
            One HEAD.
        """
        return self._exists(self.checkpoint_key(number))

    def _exists(self, key: str) -> bool:
        try:
            self._store.size(key)
        except ObjectNotFoundError:
            return False
        return True

    def read(self, number: int) -> LogCommit | None:
        """Return a commit; None if it is missing.

        Cost:
            One GET of some KiB.
        """
        try:
            start = self._store.get_range(self.key(number), 0, _FIRST_LINE_BYTES)
        except ObjectNotFoundError:
            return None
        return _commit(number, bytes(start).partition(b"\n")[0])

    def add(self, number: int, lines: Sequence[bytes]) -> bool:
        """Make a commit, unless there is one with its number.

        Returns:
            True if the commit was made.

        Cost:
            One conditional PUT.
        """
        try:
            self._store.create(self.key(number), b"\n".join(lines) + b"\n")
        except ObjectExistsError:
            return False
        return True

    def live_files(self) -> LiveFiles:
        """Read the whole log again, and return its state.

        Raises:
            CorruptMetadataError: The log cannot be read.

        Cost:
            One LIST, the last checkpoint, and one GET for each commit since.
        """
        keys = self.keys()
        commits = _numbers(keys, COMMIT)
        checkpoints = _numbers(keys, CHECKPOINT)
        first = max(checkpoints, default=-1)
        if first >= 0 and first not in commits:
            raise CorruptMetadataError(
                f"The Delta log {self.folder!r} has {self.checkpoint_key(first)!r}, with which "
                "readers begin, but lacks its commit.",
                hint=_REMEDY,
            )
        live = LiveFiles()
        if checkpoints:
            for action in _checkpoint(self._store, self.checkpoint_key(first)):
                live.play(action)
            from lakebed.tables.delta.sidecars import paths_in

            for path in paths_in(self._store, self, self.checkpoint_key(first)):
                live.play({"add": {"path": path}})
        wanted = sorted(number for number in commits if number > first)
        for expected, number in enumerate(wanted, first + 1):
            if number != expected:
                raise CorruptMetadataError(
                    f"The Delta log {self.folder!r} lacks commit {expected}, but has {number}.",
                    hint=_REMEDY,
                )
        for number in wanted:
            for action in _lines(self._store, self.key(number)):
                live.play(action)
        return live


def _numbers(keys: Iterable[str], pattern: re.Pattern[str]) -> list[int]:
    """Return the numbers of commits or of checkpoints.

    Raises:
        CorruptMetadataError: One has a number that no log reaches.
    """
    numbers = []
    for key in keys:
        number = number_in(key.rpartition("/")[2], pattern)
        if number is None:
            continue
        if number >= MOST:
            raise CorruptMetadataError(
                f"{key!r} has a number that no Delta log reaches, and readers stop at it.",
                hint="Delete that object, or unpublish and publish again; the dataset itself is not "
                "affected.",
            )
        numbers.append(number)
    return numbers


def checkpoint_in(data: bytes) -> int | None:
    """Return the number of the checkpoint that a pointer names; None if it names none."""
    try:
        number = from_json(data, _Pointer).version
    except UNREADABLE:
        return None
    return number if 0 <= number < MOST else None


def _commit(number: int, line: bytes) -> LogCommit:
    try:
        info = msgspec.json.decode(line)["commitInfo"]
        description = " ".join(str(info.get(name, "")) for name in ("operation", "engineInfo"))
    except (*UNREADABLE, LookupError, TypeError, AttributeError):
        return LogCommit(number=number, mark=None)
    try:
        mark = from_json(info["userMetadata"], _Marked).lakebed
    except (*UNREADABLE, LookupError, TypeError):
        return LogCommit(number=number, mark=None, description=description.strip())
    return LogCommit(number=number, mark=mark, description=description.strip())


def _lines(store: Store, key: str) -> Iterator[dict[str, Any]]:
    data = bytes(store.get(key).data)
    try:
        for line in data.splitlines():
            if line.strip():
                action = from_json(line, dict[str, Any])
                yield _checked(action)
    except (*UNREADABLE, LookupError, TypeError) as exc:
        raise _unreadable(key, exc) from exc


def _checked(action: dict[str, Any]) -> dict[str, Any]:
    for kind in ("add", "remove"):
        if kind in action and not isinstance(action[kind]["path"], str):
            raise TypeError(kind)
    return action


def _checkpoint(store: Store, key: str) -> Iterator[dict[str, Any]]:
    try:
        with store.open_input(key) as source:
            file = pq.ParquetFile(source)
            held = {field.name for field in file.schema_arrow}
            plain = [name for name in ("metaData", "protocol") if name in held]
            rows = file.read([*plain, "add.path"]).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise _unreadable(key, exc) from exc
    for row in rows:
        action = {kind: _as_json(body) for kind, body in row.items() if body is not None}
        if action.get("metaData"):
            action["metaData"]["configuration"] = dict(action["metaData"]["configuration"])
        yield action


def _as_json(body: dict[str, Any]) -> dict[str, Any]:
    """Return an action of a checkpoint as a line of a commit holds it: without null members."""
    return {name: value for name, value in body.items() if value is not None}


def _unreadable(key: str, cause: object) -> CorruptMetadataError:
    return CorruptMetadataError(f"{key!r} of a Delta log cannot be read: {cause}.", hint=_REMEDY)

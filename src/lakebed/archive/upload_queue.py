"""A directory of bundles that wait for their upload, and the uploader that empties it.

A bundle appears atomically, complete and on disk, and is removed only after its file is in the
storage and in the index. The id is chosen beforehand, so a push can be repeated, and a crash at any
point costs only a repetition. A bundle is locked during its upload; the system releases the lock
when the process dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from lakebed.archive.archive import Archive, prepare_fields
from lakebed.archive.bundle import (
    BUNDLE_SUFFIX,
    Bundle,
    check_bundle,
    read_bundle,
    write_bundle,
)
from lakebed.archive.content import open_entry, opened, using
from lakebed.archive.name_advice import warn_of_names
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    LakebedError,
    ReadOnlyError,
    StorageError,
)

try:
    import fcntl
except ImportError:  # on Windows two uploaders of one queue may upload the same, which is harmless
    fcntl = None  # type: ignore[assignment]  # a module or nothing; every use asks first

_log = logging.getLogger(__name__)

_POLL_S = 0.5
_LONGEST_WAIT_S = 60.0

Outcome = Literal["uploaded", "invalid", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The outcome of the upload of a bundle.

    Attributes:
        path: The bundle.
        outcome: `uploaded`: the bundle is deleted. `invalid`: it stays and is ignored from now on.
            `failed`: it stays and the next upload tries again.
        record: The record of the file, if it was uploaded.
        error: The cause, otherwise.
    """

    path: Path
    outcome: Outcome
    record: ArchiveRecord | None = None
    error: LakebedError | None = None


class UploadQueue:
    """Bundles in a directory. Any number of processes may add bundles and upload them.

    Examples:
        >>> import io, lakebed, tempfile
        >>> queue = UploadQueue(tempfile.mkdtemp())
        >>> bundle = queue.enqueue(
        ...     io.BytesIO(b"hello"), path="/a.log", where="box", what="log", start="2015-03-20"
        ... )
        >>> archive = lakebed.open_archive("memory://queued")
        >>> [upload.outcome for upload in queue.upload(archive)]
        ['uploaded']
        >>> bundle.exists()
        False
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def __repr__(self) -> str:
        return f"UploadQueue({os.fspath(self.directory)!r})"

    def enqueue(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        *,
        where: str,
        what: str,
        start: object,
        end: object = None,
        work_id: str | None = None,
        path: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the field
        compress: bool = False,
        extra: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> Path:
        """Put a copy of a file into the queue; the arguments are those of `Archive.push`.

        Returns:
            The bundle, `<id>.tar`. It is on disk, even after a loss of power. In a dry run, the
            bundle that would be written; its generated id is another one in the real call.

        Warns:
            LakebedWarning: As for `Archive.push`.

        Raises:
            InvalidInputError: A field breaks a rule, or a file cannot be read or written.
            RecordExistsError: A file with this id is already waiting.
        """
        with opened(source) as file:
            fields = prepare_fields(
                source,
                {
                    "where": where,
                    "what": what,
                    "start": start,
                    "end": end,
                    "work_id": work_id,
                    "path": path,
                    "id": uuid.uuid4().hex if id is None else id,
                },
                extra,
            )
            warn_of_names([fields])
            if dry_run:
                return check_bundle(self.directory, fields)
            return write_bundle(self.directory, file, fields, compress=compress)

    def upload(
        self, archive: Archive, *, workers: int = 1, dry_run: bool = False
    ) -> Iterator[Upload]:
        """Upload the bundles that are in the queue now, and yield the outcome of each.

        Bundles that another uploader is processing are skipped.

        Args:
            archive: The archive to upload to.
            workers: Number of bundles to upload at once.
            dry_run: Read and check the bundles, and yield the outcome that each would have; all of
                them stay.

        Raises:
            InvalidInputError: The directory cannot be read, or `workers` is not positive.
            ReadOnlyError: The storage can only be read.
        """
        if dry_run:
            _checked(workers)
            found = (_checked_one(archive._on_dry_run(), path) for path in self._bundles())
            return (upload for upload in found if upload is not None)
        return self._upload(archive, self._bundles(), _checked(workers))

    def watch(
        self,
        archive: Archive,
        *,
        workers: int = 1,
        timeout_s: float | None = None,
        on_upload: Callable[[Upload], object] | None = None,
    ) -> None:
        """Upload the bundles in the queue and new ones, until the time is up.

        After a failure of the storage it waits, twice as long each time, up to a minute. An invalid
        bundle is reported once and then ignored until the file changes.

        Args:
            archive: The archive to upload to.
            workers: Number of bundles to upload at once.
            timeout_s: Duration in seconds; None for ever.
            on_upload: Callback; receives the outcome of each bundle.

        Raises:
            InvalidInputError: The directory cannot be read, or `workers` is not positive.
            ReadOnlyError: The storage can only be read.
        """
        _checked(workers)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        reported: dict[Path, tuple[int, ...]] = {}
        wait_s = _POLL_S
        while True:
            bundles = {
                path: stamp for path, stamp in self._stamps().items() if reported.get(path) != stamp
            }
            reported = {path: stamp for path, stamp in reported.items() if os.path.lexists(path)}
            has_failed = False
            for upload in self._upload(archive, list(bundles), workers):
                has_failed |= upload.outcome == "failed"
                if upload.outcome == "invalid":
                    reported[upload.path] = bundles[upload.path]
                if on_upload is not None:
                    on_upload(upload)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S) if has_failed else _POLL_S
            if deadline is not None:
                wait_s = min(wait_s, deadline - time.monotonic())
                if wait_s <= 0:
                    return
            time.sleep(wait_s)

    def _bundles(self) -> list[Path]:
        """Return the bundles by name; files with a leading dot are still being written.

        Links, pipes and the like are bundles that cannot be used: they are reported, not followed.
        """
        with using(self.directory):
            if not self.directory.exists():
                return []
            return sorted(
                path
                for path in self.directory.iterdir()
                if path.suffix == BUNDLE_SUFFIX
                and not path.name.startswith(".")
                and (path.is_symlink() or not path.is_dir())
            )

    def _stamps(self) -> dict[Path, tuple[int, ...]]:
        stamps: dict[Path, tuple[int, ...]] = {}
        for path in self._bundles():
            with contextlib.suppress(FileNotFoundError):  # uploaded by another
                status = path.lstat()
                # A change of permissions changes only the last of these.
                stamps[path] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        return stamps

    def _upload(self, archive: Archive, bundles: list[Path], workers: int) -> Iterator[Upload]:
        if workers == 1:
            for path in bundles:
                yield from _logged(_upload_one(archive, path))
            return
        with ThreadPoolExecutor(workers) as pool:
            waiting: set[Future[Upload | None]] = {
                pool.submit(_upload_one, archive, path) for path in bundles
            }
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield from _logged(future.result())
            finally:
                for future in waiting:
                    future.cancel()


def _checked(workers: int) -> int:
    if workers < 1:
        msg = f"{workers} is not a valid number of workers."
        raise InvalidInputError(msg, hint="Give at least 1.")
    return workers


def _logged(upload: Upload | None) -> Iterator[Upload]:
    if upload is None:
        return
    if upload.error is not None:
        _log.warning(
            "bundle stays path=%s outcome=%s error=%s", upload.path, upload.outcome, upload.error
        )
    else:
        _log.info("bundle uploaded path=%s", upload.path)
    yield upload


def _upload_one(archive: Archive, path: Path) -> Upload | None:
    """Upload a bundle; None if another uploader has it, or has uploaded it."""

    def upload() -> ArchiveRecord | None:
        with _locked(path) as file:
            if file is None:
                return None
            with read_bundle(file, path) as bundle:
                record = _push(archive, bundle)
            with using(path):
                path.unlink(missing_ok=True)
        return record

    return _outcome(path, upload)


def _checked_one(archive: Archive, path: Path) -> Upload | None:
    """Return the outcome that the upload of a bundle would have; None if it is gone."""

    def push() -> ArchiveRecord | None:
        with (
            contextlib.suppress(FileNotFoundError),
            open_entry(path) as file,
            read_bundle(file, path) as bundle,
        ):
            return _push(archive, bundle)
        return None

    return _outcome(path, push)


def _outcome(path: Path, upload: Callable[[], ArchiveRecord | None]) -> Upload | None:
    """Return the outcome of an upload; None if it has no record."""
    try:
        record = upload()
    except ReadOnlyError:  # the archive's fault, and the same for every bundle
        raise
    except (FormatError, InvalidInputError, AlreadyExistsError) as exc:
        return Upload(path=path, outcome="invalid", error=exc)
    except StorageError as exc:
        return Upload(path=path, outcome="failed", error=exc)
    return None if record is None else Upload(path=path, outcome="uploaded", record=record)


def _push(archive: Archive, bundle: Bundle) -> ArchiveRecord:
    try:
        return archive.push_prepared(bundle.content, bundle.metadata)
    except FormatError as exc:
        # The archive is damaged, such as its index; the bundle itself may be valid.
        raise StorageError(exc.message, hint=exc.hint) from exc


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes] | None]:
    """Open and lock a bundle; None if another process holds it or it is gone.

    Raises:
        InvalidInputError: It cannot be opened, or is a link or not a regular file.
    """
    with contextlib.ExitStack() as stack:
        file = None
        with using(path), contextlib.suppress(FileNotFoundError):
            opened_file = stack.enter_context(open_entry(path))
            if fcntl is None or _lock(opened_file, path):
                file = opened_file
        yield file


def _lock(file: IO[bytes], path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have uploaded and removed it.
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False

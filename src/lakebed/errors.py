"""All errors that Lakebed raises, as one tree.

::

    LakebedError
    ├ NotFoundError(LookupError)        DatasetNotFoundError, VersionNotFoundError, ObjectNotFoundError,
    │                                   RecordNotFoundError
    ├ AlreadyExistsError                DatasetExistsError, ObjectExistsError, RecordExistsError
    ├ InvalidInputError(ValueError)     SchemaMismatchError, PartitionSpecError, InvalidNameError,
    │                                   PredicateError, ReadOnlyError, ChecksFailedError,
    │                                   RejectsError, DuplicateKeyError,
    │                                   RenamedError(AttributeError)
    ├ ConflictError                     CommitConflictError (and of it StaleRerunError),
    │                                   CommitUnknownError, PreconditionFailedError
    ├ StorageError                      AccessDeniedError, MetadataProviderError, StorageFullError,
    │                                   ThrottledError
    ├ FormatError                       CorruptMetadataError (and of it DamagedFileError),
    │                                   UnsupportedVersionError
    ├ MissingDependencyError(ImportError) WorkerEnvironmentError
    └ NotPublishedError

The branches are grouped by what the caller does next: look elsewhere, choose another name,
correct the input, try again, check the storage, check the data, install an extra, publish the
commit.

`LakebedWarning` is not an error: the operation that warns is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ClassVar, Self

HIDDEN = "***"

# `scheme://user:password@`; digits up to a slash after the colon are a port. Secret keys of S3 may
# contain slashes. Only in HTTP URLs is a word before the `@` a token: elsewhere it is a container.
_USER = re.compile(
    r"(://)[^\s/:@'\"]*:(?!\d{1,5}(?:[/?#\s'\"]|$))[^\s@'\"]+@|(\bhttps?://)[^\s/@'\":]+@",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"\b(sig|delegation|(?:\w+_)?(?:token|password|secret|(?:access|account|sas|master)_?key)"
    r"|X-(?:Amz|Goog)-(?:Signature|Security-Token|Credential))"
    r"=[^&\s'\"]+",
    re.IGNORECASE,
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without passwords in URLs, signatures of requests, and the given secrets.

    >>> redacted("PUT http://ops:hunter2@minio:9000/lake?X-Amz-Signature=00ff&x=1 failed")
    'PUT http://***@minio:9000/lake?X-Amz-Signature=***&x=1 failed'
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    # Measured: most texts have no such sign, and a look for it takes a tenth of the time.
    if "://" in text:
        text = _USER.sub(rf"\1\2{HIDDEN}@", text)
    return _SIGNATURE.sub(rf"\1={HIDDEN}", text) if "=" in text else text


class ErrorCode(StrEnum):
    """Stable identifiers for programs. Members are added, never renamed or removed."""

    ACCESS_DENIED = "access-denied"
    ALREADY_EXISTS = "already-exists"
    CHECKS_FAILED = "checks-failed"
    COMMIT_CONFLICT = "commit-conflict"
    COMMIT_UNKNOWN = "commit-unknown"
    CONFLICT = "conflict"
    CORRUPT_METADATA = "corrupt-metadata"
    DAMAGED_FILE = "damaged-file"
    DATASET_EXISTS = "dataset-exists"
    DATASET_NOT_FOUND = "dataset-not-found"
    DUPLICATE_KEY = "duplicate-key"
    ERROR = "error"
    FORMAT = "format"
    INVALID_INPUT = "invalid-input"
    INVALID_NAME = "invalid-name"
    METADATA_PROVIDER = "metadata-provider"
    MISSING_DEPENDENCY = "missing-dependency"
    NOT_FOUND = "not-found"
    NOT_PUBLISHED = "not-published"
    OBJECT_EXISTS = "object-exists"
    OBJECT_NOT_FOUND = "object-not-found"
    PARTITION_SPEC = "partition-spec"
    PRECONDITION_FAILED = "precondition-failed"
    PREDICATE = "predicate"
    READ_ONLY = "read-only"
    REJECTS = "rejects"
    RENAMED = "renamed"
    RECORD_EXISTS = "record-exists"
    RECORD_NOT_FOUND = "record-not-found"
    SCHEMA_MISMATCH = "schema-mismatch"
    STALE_RERUN = "stale-rerun"
    STORAGE = "storage"
    STORAGE_FULL = "storage-full"
    THROTTLED = "throttled"
    UNSUPPORTED_VERSION = "unsupported-version"
    VERSION_NOT_FOUND = "version-not-found"
    WORKER_ENVIRONMENT = "worker-environment"


class LakebedError(Exception):
    """Root of the tree.

    Attributes:
        message: Description of the problem, with the value, but without passwords in URLs.
        hint: Advice on what to do about it, or an empty string.
        code: Stable identifier, see `ErrorCode`.
        exit_code: Exit code of the command line.

    >>> error = DatasetNotFoundError("Dataset 'flihgts' not found.", hint="Did you mean 'flights'?")
    >>> print(error, error.code, error.exit_code)
    Dataset 'flihgts' not found. Did you mean 'flights'? dataset-not-found 3
    """

    code: ClassVar[ErrorCode] = ErrorCode.ERROR
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = redacted(message)
        self.hint = redacted(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling calls the class with `args`, without keyword arguments; errors
        # from Spark workers and process pools must keep all their attributes.
        return (_rebuild, (type(self), self.__dict__))


class LakebedWarning(UserWarning):
    """A warning about an operation that succeeds, but probably loses or mixes up data later.

    The command line shows it as a note. Python's warning filters can turn it into an error, or
    hide it:

    >>> import warnings
    >>> warnings.simplefilter("error", LakebedWarning)
    """


def _rebuild(cls: type[LakebedError], attributes: Mapping[str, Any]) -> LakebedError:
    error = cls.__new__(cls)
    Exception.__init__(error, attributes["message"])
    error.__dict__.update(attributes)
    return error


def to_document(error: LakebedError) -> dict[str, Any]:
    """Return an error as a document for JSON, for transports that do not allow pickles.

    >>> error = CommitUnknownError("No answer.", commit_id="c0ffee")
    >>> arrived = from_document(to_document(error))
    >>> type(arrived).__name__, arrived.commit_id
    ('CommitUnknownError', 'c0ffee')
    """
    # For a class from elsewhere, its nearest base in the tree.
    classes = (cls.__name__ for cls in type(error).__mro__ if cls.__module__ == __name__)
    return {"class": next(classes), "attributes": dict(vars(error))}


def from_document(document: Mapping[str, Any]) -> LakebedError:
    """Return the error from the result of `to_document`, with its class and all its attributes."""
    attributes = {
        # Our own attributes are tuples; Python needs a list for its notes.
        name: tuple(value) if isinstance(value, list) and name != "__notes__" else value
        for name, value in document["attributes"].items()
    }
    return _rebuild(_class_of(document["class"]), attributes)


def _class_of(name: str) -> type[LakebedError]:
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, LakebedError)):
        msg = f"{name!r} is not an error class of Lakebed"
        raise TypeError(msg)
    return kind


@contextmanager
def noting(what: str | Callable[[], str]) -> Iterator[None]:
    """Add a note to an error about work that was completed before it.

    Args:
        what: Full sentences about that work and what to do about the rest; or a function that
            returns them, called if there is an error. An empty text adds no note.
    """
    try:
        yield
    except LakebedError as exc:
        note = what if isinstance(what, str) else what()
        if note:
            exc.add_note(note)
        raise


class NotFoundError(LakebedError, LookupError):
    """The named object does not exist."""

    code = ErrorCode.NOT_FOUND
    exit_code = 3


class DatasetNotFoundError(NotFoundError):
    """The repository has no dataset of this name.

    Attributes:
        within: Names of the datasets in the repository at this path, if there is one.
        is_in_dataset: True if the location that was opened as a repository is itself a dataset.
        table: Format of the table that is in the directory of this name, such as `Delta`; empty if
            there is none.
    """

    code = ErrorCode.DATASET_NOT_FOUND
    within: tuple[str, ...] = ()
    is_in_dataset: bool = False
    table: str = ""


class VersionNotFoundError(NotFoundError):
    """The dataset has no such version, or a cleanup has removed it."""

    code = ErrorCode.VERSION_NOT_FOUND


class ObjectNotFoundError(NotFoundError):
    """The store has no object under this key."""

    code = ErrorCode.OBJECT_NOT_FOUND


class RecordNotFoundError(NotFoundError):
    """The archive has no such file, or no file that matches."""

    code = ErrorCode.RECORD_NOT_FOUND


class AlreadyExistsError(LakebedError):
    """A name is taken."""

    code = ErrorCode.ALREADY_EXISTS
    exit_code = 4


class DatasetExistsError(AlreadyExistsError):
    """The repository already has a dataset of this name."""

    code = ErrorCode.DATASET_EXISTS


class ObjectExistsError(AlreadyExistsError):
    """The store already has an object under this key, so put-if-absent wrote nothing."""

    code = ErrorCode.OBJECT_EXISTS


class RecordExistsError(AlreadyExistsError):
    """The archive has another file under this id."""

    code = ErrorCode.RECORD_EXISTS


class InvalidInputError(LakebedError, ValueError):
    """The caller's input cannot be used; nothing was written."""

    code = ErrorCode.INVALID_INPUT
    exit_code = 2


class SchemaMismatchError(InvalidInputError):
    """Data or a schema does not fit the dataset's schema.

    Attributes:
        row: Position of the row in the batch, if it is known.
        others: Errors of further rows of the batch, each with its row, as far as they are known.
        unknown: Path of a field that the dataset lacks, if the error is about one.
        is_malformed: True if a line of a raw file is not of its format: no other schema could take it.
    """

    row: int | None = None
    others: Sequence[SchemaMismatchError] = ()
    unknown: str | None = None
    is_malformed: bool = False

    @classmethod
    def of_line(cls, message: str, hint: str) -> Self:
        """Return the error for a line of a raw file that is not of its format."""
        error = cls(message, hint=hint)
        error.is_malformed = True
        return error

    code = ErrorCode.SCHEMA_MISMATCH


class PartitionSpecError(InvalidInputError):
    """A partition strategy is not valid, or does not fit the schema or the data."""

    code = ErrorCode.PARTITION_SPEC


class InvalidNameError(InvalidInputError):
    """A dataset name, a field name or a key is not valid."""

    code = ErrorCode.INVALID_NAME


class PredicateError(InvalidInputError):
    """A predicate cannot be parsed, or does not fit the schema."""

    code = ErrorCode.PREDICATE


class ReadOnlyError(InvalidInputError):
    """The target of a write is read-only."""

    code = ErrorCode.READ_ONLY


class ChecksFailedError(InvalidInputError):
    """A staged batch does not pass its checks, and stays staged; or a write fails a declared check.

    Attributes:
        failed: The checks that failed, each with its result.
        counts: Number of failing rows of each declared check that failed, by its name.
    """

    code = ErrorCode.CHECKS_FAILED

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        failed: tuple[str, ...] = (),
        counts: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.failed = failed
        self.counts = dict(counts or {})


class RejectsError(InvalidInputError):
    """Raw files have lines that do not fit, and the options allow no commit in this case.

    Attributes:
        rejected_count: Number of lines, or remainders of damaged files, that do not fit.
    """

    code = ErrorCode.REJECTS

    def __init__(self, message: str, *, hint: str = "", rejected_count: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.rejected_count = rejected_count


class DuplicateKeyError(InvalidInputError):
    """The data for a merge has several rows with the same key; nothing was written.

    Attributes:
        key: One of these keys, with its columns and values as SQL text.
    """

    code = ErrorCode.DUPLICATE_KEY

    def __init__(self, message: str, *, hint: str = "", key: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


class RenamedError(InvalidInputError, AttributeError):
    """A call has another name now, which the message gives; also an `AttributeError`."""

    code = ErrorCode.RENAMED


class ConflictError(LakebedError):
    """Another writer was faster; reading again and trying again may help."""

    code = ErrorCode.CONFLICT
    exit_code = 5


class CommitConflictError(ConflictError):
    """Another commit since the base conflicts with this one. Nothing became visible.

    Attributes:
        expected: The version that this commit was based on.
        actual: The version that the head has now.
        partitions: The partitions that both changed.
    """

    code = ErrorCode.COMMIT_CONFLICT

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        expected: int,
        actual: int,
        partitions: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual
        self.partitions = partitions


class StaleRerunError(CommitConflictError):
    """A rerun began before the batch that it would replace, or a stream has committed a later epoch.

    Nothing became visible.

    Attributes:
        batch_id: Batch id of the newer batch of the same run.
        commit_id: Id of the commit that made it visible.
    """

    code = ErrorCode.STALE_RERUN
    batch_id: int | None = None
    commit_id: str = ""


class CommitUnknownError(ConflictError):
    """The store did not answer, so the commit may or may not have happened. Nothing was deleted.

    Attributes:
        commit_id: Id to look for in the dataset's history once the store answers again.
    """

    code = ErrorCode.COMMIT_UNKNOWN

    def __init__(self, message: str, *, hint: str = "", commit_id: str) -> None:
        super().__init__(message, hint=hint)
        self.commit_id = commit_id


class PreconditionFailedError(ConflictError):
    """The object changed since it was read, so replace-if-match wrote nothing."""

    code = ErrorCode.PRECONDITION_FAILED


class StorageError(LakebedError):
    """The storage failed.

    Attributes:
        retryable: True if the same call may succeed later.
    """

    code = ErrorCode.STORAGE
    exit_code = 6

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class AccessDeniedError(StorageError):
    """The storage denies the caller access, or does not know the caller."""

    code = ErrorCode.ACCESS_DENIED


class MetadataProviderError(StorageError):
    """The dataset has changed, but a metadata provider of the user failed to record it."""

    code = ErrorCode.METADATA_PROVIDER


class StorageFullError(StorageError):
    """The storage has no space for the data."""

    code = ErrorCode.STORAGE_FULL


class ThrottledError(StorageError):
    """The storage limits the rate of requests."""

    code = ErrorCode.THROTTLED


class FormatError(LakebedError):
    """The data on storage has an unknown or damaged format."""

    code = ErrorCode.FORMAT
    exit_code = 7


class CorruptMetadataError(FormatError):
    """Metadata is truncated, has a wrong type, or points outside its dataset."""

    code = ErrorCode.CORRUPT_METADATA


class DamagedFileError(CorruptMetadataError):
    """A data file differs from what was written, or cannot be read.

    Attributes:
        dataset: Name of the dataset.
        key: Key of the file, relative to the repository; empty if it is not known.
    """

    code = ErrorCode.DAMAGED_FILE

    def __init__(self, message: str, *, hint: str = "", dataset: str, key: str) -> None:
        super().__init__(message, hint=hint)
        self.dataset = dataset
        self.key = key

    @classmethod
    def of(cls, dataset: str, key: str, how: str) -> Self:
        """Return an error that describes the damage of a file, with a hint."""
        which = f"Data file {key!r} of {dataset!r}" if key else f"A data file of {dataset!r}"
        return cls(
            f"{which} {how}",
            hint="The head refers to it, so it was changed from outside. `lakebed check --deep` "
            "finds all such files; restore them from a copy, or roll back or rerun their "
            "partitions.",
            dataset=dataset,
            key=key,
        )


class UnsupportedVersionError(FormatError):
    """Metadata was written by a version of the format that this release does not know."""

    code = ErrorCode.UNSUPPORTED_VERSION


class MissingDependencyError(LakebedError, ImportError):
    """An optional package is required.

    Attributes:
        extra: The extra of Lakebed that installs it.
    """

    code = ErrorCode.MISSING_DEPENDENCY
    exit_code = 8

    def __init__(self, message: str, *, hint: str = "", extra: str) -> None:
        super().__init__(message, hint=hint)
        self.extra = extra

    @classmethod
    def for_extra(cls, package: str, extra: str, purpose: str) -> Self:
        """Return an error for a missing package that `purpose` needs, with the extra to install."""
        return cls(
            f"{purpose} needs the package {package}, which is not installed.",
            hint=f"Install it with: pip install 'lakebed[{extra}]'",
            extra=extra,
        )


class WorkerEnvironmentError(MissingDependencyError):
    """The Python environment of Spark's workers cannot run Lakebed; nothing became visible."""

    code = ErrorCode.WORKER_ENVIRONMENT


class NotPublishedError(LakebedError):
    """A commit was made, but a table named by the dataset's properties does not show it.

    Only the command line raises it, at the end of a command; in Python see
    `Commit.not_published`.
    """

    code = ErrorCode.NOT_PUBLISHED
    exit_code = 9

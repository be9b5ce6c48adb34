"""S3, Google Cloud Storage and Azure through obstore.

The service decides every race by the conditions of a put (`If-None-Match`, `If-Match`, a
generation). Conditional puts are sent exactly once: if the answer to one is lost and it is sent
again, the second is refused because of the first, and a write that landed would be reported as a
conflict. So a lost answer is raised as a retryable `StorageError`, and the caller, which can look
for its own commit, decides what it means.

Before the first conditional put, a test shows whether the service honours conditions at all. The
result is recorded at the root of the store, so that other processes need not repeat the test.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import logging
import re
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any

from lakebed.common.redaction import StorageOptions
from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    MissingDependencyError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
    ThrottledError,
    redacted,
)
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, is_listed
from lakebed.store.conditions import ConditionsNote, conditions_of
from lakebed.store.credentials import find_credentials
from lakebed.store.hadoop import HadoopNames
from lakebed.store.object_options import (
    SERVICES,
    Service,
    Settings,
    environment_of,
    known_options,
    parse_url,
)
from lakebed.store.profile import Provider

_log = logging.getLogger(__name__)

_PACKAGE = "obstore"
# Begins with a dot, so that no listing shows it and no dataset can have the name.
_PROBE = ".lakebed-probe-"
_KEYS_PER_DELETE = 1000  # S3 DeleteObjects limit; obstore splits further where a service asks
_PART_BYTES = 8 * 1024 * 1024
_MAX_PARTS = 9_000  # S3 allows 10,000; the others are for a file that grew
_PARTS_AT_ONCE = 4
_HEADERS = frozenset(  # obstore lists them together with the attributes of a user
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)


class ObjectStore(Store):
    """A bucket, or a prefix of one."""

    keeps_attributes = True

    def __init__(self, url: str, *, options: Mapping[str, str] | None = None) -> None:
        """Open the store; nothing is sent yet.

        Args:
            url: `s3://BUCKET/PREFIX`, likewise `s3a`, `gs` and `az`. The prefix is taken
                literally, `%` included.
            options: Names of obstore's configuration of the service and of its HTTP client, such
                as `endpoint`, `region`, `allow_http`; and `max_retries` and `retry_timeout_s`,
                which apply to all requests except conditional puts; and for S3 `profile`. Missing
                options come from the environment, as obstore describes, and then from the tools
                of the cloud: a profile of AWS, application default credentials of Google, the
                default chain of Azure.

        Raises:
            InvalidInputError: The URL has no bucket or contains credentials, an option is unknown
                or cannot be used, or there is no such profile.
            MissingDependencyError: obstore is not installed, or a profile was named and boto3 is
                not.
        """
        scheme, bucket, prefix = parse_url(url)
        self.uri = f"{scheme}://{bucket}/{prefix}".rstrip("/")
        self._service = SERVICES[scheme]
        self._begins_with = f"{prefix}/" if prefix else ""
        self._options = StorageOptions(options or {})
        self._secrets = StorageOptions({**environment_of(self._service), **self._options}).secrets
        self._obstore = _import_obstore(self._service, self.uri)
        settings = Settings.of(self._service, self._options)
        self.supports_compare_and_swap = not (scheme == "s3" and settings.puts_unconditionally)
        self._hadoop = HadoopNames(scheme, bucket, self._service, settings.service)
        self._lists_in_key_order = self._service.lists_in_key_order and not settings.is_express
        credentials = find_credentials(scheme, settings, self.uri)
        retries = settings.max_retries
        self._client = self._open_client(bucket, settings, credentials, max_retries=retries)
        self._client_without_retries = self._open_client(
            bucket, settings, credentials, max_retries=0
        )
        self._conditions = conditions_of(self.cache_name)
        self._note = ConditionsNote.of(settings.addresses)

    def _open_client(
        self,
        bucket: str,
        settings: Settings,
        credentials: Provider | None,
        *,
        max_retries: int,
    ) -> Any:
        factory = getattr(self._obstore.store, self._service.class_name)
        try:
            return factory(
                bucket,
                config=dict(settings.service),
                client_options=dict(settings.client),
                retry_config={
                    "max_retries": max_retries,
                    "retry_timeout": timedelta(seconds=settings.retry_timeout_s),
                },
                credential_provider=credentials,
            )
        except BaseException as exc:
            expected = (self._obstore.exceptions.BaseError, ValueError, TypeError)
            if not (isinstance(exc, expected) or _is_panic(exc)):
                raise
            _hide_secrets(exc, self._secrets)
            raise _bad_options(self.uri, self._service, exc) from exc

    def __reduce__(self) -> tuple[Callable[..., ObjectStore], tuple[str, StorageOptions]]:
        return _reopen, (self.uri, self._options)

    def _why_read_only(self) -> str:
        return super()._why_read_only() or self._conditions.broken

    def _refusal_hint(self) -> str:
        if self._conditions.broken:
            return (
                "Use a service, or a version of this one, that honours If-Match and If-None-Match "
                "on PUT; `lakebed doctor URL --races` tests it."
            )
        return (
            "Remove conditional_put=disabled (or AWS_CONDITIONAL_PUT) if the service supports "
            "If-Match and If-None-Match; else use a service that does."
        )

    def _check_conditions(self) -> None:
        self._conditions.check(self._look_up_broken_condition)

    def _try_conditions(self) -> None:
        self._conditions.check(self._find_broken_condition, repeat=True)
        if self._conditions.broken:
            self._remove(self._note.key)  # the service may have honoured them before

    def _look_up_broken_condition(self) -> str:
        """Use the note of another process; if there is none, make the test and write it."""
        if self._has_note():
            return ""
        broken = self._find_broken_condition()
        if not broken:
            self._write_note()
        return broken

    def _has_note(self) -> bool:
        self._log_call("get", self._note.key)
        try:
            return self._note.is_believed(self._get(self._note.key))
        except (ObjectNotFoundError, AccessDeniedError):
            # Services deny access to a missing object if the caller may not list.
            return False

    def _write_note(self) -> None:
        self._log_call("put", self._note.key)
        try:
            self._put(self._note.key, memoryview(self._note.content()))
        except LakebedError as exc:
            _log.info("next process tries the conditions again store=%s error=%s", self.uri, exc)

    def _find_broken_condition(self) -> str:
        """Try both conditions on an object that satisfies neither of them."""
        key = f"{_PROBE}{uuid.uuid4().hex}"
        self._log_call("probe", key)
        try:
            self._put(key, memoryview(b"a probe"))
            try:
                if self._takes(key, "create"):
                    return (
                        "the service accepted a put with 'If-None-Match: *' for an object that "
                        "exists, and concurrent writers would lose data."
                    )
                if self._takes(key, dict(self._service.unmet_condition)):
                    return (
                        "the service accepted a put whose If-Match differs from the object's etag, "
                        "and concurrent writers would lose data."
                    )
            finally:
                self._remove(key)
        except AccessDeniedError as exc:
            if exc.hint != _CHECK_CREDENTIALS:
                raise
            hint = (
                f"Give credentials that may write and delete {self._where(_PROBE)}*: before its "
                "first commit a process tests there whether the service honours conditional puts."
            )
            raise AccessDeniedError(exc.message, hint=hint) from exc
        return ""

    def _takes(self, key: str, condition: str | dict[str, str]) -> bool:
        """Return whether the service writes an object although the condition is not met."""
        try:
            with self._translating(key):
                self._put_if(key, memoryview(b"a probe"), condition, client=self._client)
        except (ObjectExistsError, PreconditionFailedError, ObjectNotFoundError):
            return False
        return True

    def _remove(self, key: str) -> None:
        try:
            self._delete((key,))
        except LakebedError as exc:
            _log.warning("object stays behind key=%s store=%s error=%s", key, self.uri, exc)

    def _translating(self, key: str) -> contextlib.AbstractContextManager[None]:
        return translating_object_store_errors(self._where(key), self._secrets)

    def _where(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _get(self, key: str) -> StoredObject:
        with self._translating(key):
            result = self._obstore.get(self._client, self._begins_with + key)
            return _stored(self._where(key), key, result)

    @property
    def cache_name(self) -> str:
        """The URI and a hash of the options."""
        # Two endpoints may have buckets of the same name; secrets stay out of the cache.
        settings = sorted(self._options.items())
        return f"{self.uri}#{hashlib.blake2b(repr(settings).encode(), digest_size=16).hexdigest()}"

    @property
    def group_key(self) -> Hashable:
        """The cache name, which differs with the options, such as keys."""
        return self.cache_name

    def _hadoop_uri(self, key: str) -> str | None:
        root = self._hadoop.root
        return None if root is None else f"{root}/{self._begins_with}{key}"

    def hadoop_settings(self) -> StorageOptions:
        """Return the given endpoint, region and keys, for this bucket or account only."""
        return self._hadoop.settings()

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        from obstore.exceptions import NotModifiedError

        e_tag = etag.partition(_VERSION_MARK)[0]
        with self._translating(key):
            try:
                result = self._obstore.get(
                    self._client, self._begins_with + key, options={"if_none_match": e_tag}
                )
            except NotModifiedError:
                return None
            stored = _stored(self._where(key), key, result)
        # A service that does not support the condition sends the same object.
        return None if stored.etag == etag else stored

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            with self._translating(key):
                buffer = self._obstore.get_range(
                    self._client, self._begins_with + key, start=start, length=length
                )
                return bytes(buffer.to_bytes())
        except StorageError as exc:
            # Services refuse a range that starts at the end or later, or send an empty one, which
            # the client rejects.
            if _starts_too_late(exc) and start >= self._size(key):
                return b""
            raise

    def _size(self, key: str) -> int:
        with self._translating(key):
            return int(self._obstore.head(self._client, self._begins_with + key)["size"])

    def _stat(self, key: str) -> ObjectStat:
        with self._translating(key):
            result = self._obstore.get(
                self._client, self._begins_with + key, options={"head": True}
            )
            return ObjectStat(
                key=key,
                size_bytes=result.meta["size"],
                modified_at=result.meta["last_modified"],
                attributes={
                    name: value for name, value in result.attributes.items() if name not in _HEADERS
                },
            )

    def _create(self, key: str, data: memoryview) -> str:
        with (
            self._translating(key),
            _missing_bucket_on_write(self._where(key)),
        ):
            return self._put_if(key, data, "create")

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        e_tag, _, version = if_match.partition(_VERSION_MARK)
        condition = {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag}
        try:
            with self._translating(key):
                return self._put_if(key, data, condition)
        except (ObjectExistsError, ObjectNotFoundError) as exc:
            # Services also answer "conflict" or "not found" if the condition is not met.
            msg = f"Object {self._where(key)!r} was changed or deleted since it was read."
            raise PreconditionFailedError(msg) from exc

    def _put_if(
        self,
        key: str,
        data: memoryview,
        condition: str | dict[str, str],
        *,
        client: Any = None,
    ) -> str:
        written = self._obstore.put(
            client or self._client_without_retries,
            self._begins_with + key,
            data,
            mode=condition,
            use_multipart=False,
        )
        return _etag(self._where(key), written, is_written=True)

    def _put(self, key: str, data: memoryview) -> None:
        with (
            self._translating(key),
            _missing_bucket_on_write(self._where(key)),
        ):
            self._obstore.put(self._client, self._begins_with + key, data)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,
    ) -> None:
        first = bytearray()
        for piece in pieces:
            first += piece
            if len(first) > _PART_BYTES:
                break
        is_whole = len(first) <= _PART_BYTES
        # A small object goes in one request; obstore copies the content it receives.
        content = first if is_whole else map(bytes, itertools.chain([first], pieces))
        with (
            self._translating(key),
            _missing_bucket_on_write(self._where(key)),
        ):
            self._obstore.put(
                self._client,
                self._begins_with + key,
                content,
                attributes=dict(attributes),
                use_multipart=not is_whole,
                chunk_size=max(_PART_BYTES, (size_bytes or 0) // _MAX_PARTS),
                max_concurrency=_PARTS_AT_ONCE,
            )

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        entries = self._entries(begins_with, recursive=recursive)
        if not self._lists_in_key_order:
            entries = iter(sorted(entries, key=lambda entry: entry.key))
        return entries

    def _entries(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        with self._translating(begins_with):
            for entry in self._raw_entries(self._begins_with + begins_with, recursive=recursive):
                key = entry["path"].removeprefix(self._begins_with)
                if is_listed(key):
                    yield ObjectInfo(
                        key=key, size_bytes=entry["size"], modified_at=entry["last_modified"]
                    )

    def _raw_entries(self, directory: str, *, recursive: bool) -> Iterator[Mapping[str, Any]]:
        if not recursive:
            yield from self._obstore.list_with_delimiter(self._client, directory or None)["objects"]
            return
        for chunk in self._obstore.list(self._client, directory or None):
            yield from chunk

    def _folders(self, begins_with: str) -> list[str]:
        directory = self._begins_with + begins_with
        with self._translating(begins_with):
            listed = self._obstore.list_with_delimiter(self._client, directory or None)
        return [
            path.removeprefix(directory).removesuffix("/") for path in listed["common_prefixes"]
        ]

    def _delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _KEYS_PER_DELETE):
            batch = keys[first : first + _KEYS_PER_DELETE]
            try:
                self._delete_all(batch)
            except ObjectNotFoundError:
                # Google and Azure reject a missing key and may not delete the rest of the batch.
                for key in batch:
                    with contextlib.suppress(ObjectNotFoundError):
                        self._delete_all((key,))

    def _delete_if_match(self, key: str, etag: str) -> bool:
        try:
            if self._get_if_changed(key, etag) is not None:
                return False
            with self._translating(key):
                # Sent once: a second one could delete what others have written after the first.
                self._obstore.delete(self._client_without_retries, self._begins_with + key)
        except ObjectNotFoundError:
            return False
        return True

    def _delete_all(self, keys: Sequence[str]) -> None:
        with self._translating(keys[0]):
            self._obstore.delete(self._client, [self._begins_with + key for key in keys])


_UNKNOWN_OPTION = re.compile(r"key: '([^']*)' is not valid for store", re.IGNORECASE)


def _bad_options(uri: str, service: Service, exc: BaseException) -> InvalidInputError:
    unknown = _UNKNOWN_OPTION.search(_reason(exc))
    if unknown is None:
        msg = f"The options for {uri} cannot be used: {_reason(exc)}"
        return InvalidInputError(msg, hint="See the storage options of obstore.")
    known = sorted(known_options(service))
    close = difflib.get_close_matches(service.bare(unknown[1]), known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It takes {', '.join(known)}."
    return InvalidInputError(f"{uri} has no storage option {unknown[1]!r}.", hint=hint)


def _reopen(url: str, options: StorageOptions) -> ObjectStore:
    return ObjectStore(url, options=options)


def _import_obstore(service: Service, uri: str) -> ModuleType:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as exc:
        raise MissingDependencyError.for_extra(_PACKAGE, service.extra, uri) from exc
    return obstore


def _stored(where: str, key: str, result: Any) -> StoredObject:
    return StoredObject(
        key=key,
        data=result.bytes().to_bytes(),
        etag=_etag(where, result.meta),
        modified_at=result.meta["last_modified"],
    )


_VERSION_MARK = "\n"  # never part of a header, so neither of an etag nor of a version


def _etag(where: str, meta: Mapping[str, str | None], *, is_written: bool = False) -> str:
    """Return the etag, with the version for services that compare it."""
    e_tag, version = meta.get("e_tag"), meta.get("version")
    if not e_tag:
        msg = f"The service returned no etag for {where!r}."
        hint = "Use another service: without etags concurrent writers would lose data."
        # A write has landed, so the error must not claim that it has not.
        raise StorageError(msg, hint=hint, retryable=is_written)
    return f"{e_tag}{_VERSION_MARK}{version}" if version else e_tag


HTTP_RANGE_NOT_SATISFIABLE = 416
_HTTP_THROTTLED = frozenset({429, 503})
_HTTP_REQUEST_TIMEOUT = 408
_HTTP_NOT_IMPLEMENTED = 501
_HTTP_SERVER_ERROR = 500
_HTTP_INSUFFICIENT_STORAGE = 507  # of MinIO, without space
_QUOTA_MARK = "QuotaExceeded"  # of Ceph with status 403, of MinIO with 400
_EXPIRED_MARKS = ("ExpiredToken", "TokenRefreshRequired")  # of S3
_STATUS = re.compile(r"status code: (\d{3})")


def _status(exc: BaseException) -> int | None:
    """Return the HTTP status from the message of obstore's error, which has no field for it."""
    match = _STATUS.search(str(exc.__cause__ if isinstance(exc, LakebedError) else exc))
    return int(match[1]) if match else None


def _starts_too_late(exc: LakebedError) -> bool:
    refused = _status(exc) == HTTP_RANGE_NOT_SATISFIABLE
    return refused or "Wanted range starting at" in str(exc.__cause__)


_XML = re.compile(r":? *<\?xml.*", re.DOTALL)
_CODE = re.compile(r"<Code>([^<]*)</Code>")


def _reason(exc: BaseException) -> str:
    """Return obstore's message without its XML and its debug output."""
    text = str(exc)
    line = _XML.sub("", text).partition("\n")[0]
    code = _CODE.search(text)
    return f"{line} ({code[1]})" if code else line


def _hide_secrets(exc: BaseException, secrets: Iterable[str]) -> None:
    """Redact secrets in an error of obstore, which remains the cause of ours."""
    waiting: list[BaseException | None] = [exc]
    seen: set[int] = set()
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.args = tuple(redacted(a, secrets) if isinstance(a, str) else a for a in error.args)
        waiting += [error.__cause__, error.__context__]


def _is_panic(exc: BaseException) -> bool:
    # Its class cannot be imported from any module, and derives from BaseException.
    return type(exc).__name__ == "PanicException"


@contextlib.contextmanager
def translating_object_store_errors(where: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Raise the most specific error of Lakebed for an error of obstore.

    Args:
        where: URI of the object, for the message.
        secrets: Texts to redact in the message and in that of the cause.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except LakebedError:
        raise
    except BaseException as exc:
        if isinstance(exc, BaseError | OSError | NotImplementedError | ValueError):
            _hide_secrets(exc, secrets)
            raise _translated(where, exc) from exc
        if _is_panic(exc):
            _hide_secrets(exc, secrets)
            raise _panicked(where, exc) from exc
        raise


def _panicked(where: str, exc: BaseException) -> StorageError:
    msg = f"The client of the object store failed at {where!r}: {_reason(exc)}"
    return StorageError(
        msg, hint="Check bucket, endpoint, region and credentials for invalid characters."
    )


@contextlib.contextmanager
def _missing_bucket_on_write(where: str) -> Iterator[None]:
    """Report a missing bucket if a write fails with "not found"."""
    try:
        yield
    except FileNotFoundError as exc:
        raise _no_bucket(where, exc) from exc


def _translated(where: str, exc: Exception) -> LakebedError:
    # By name: obstore is not imported when this module is.
    for cls in type(exc).__mro__:
        if cls.__name__ in TRANSLATIONS:
            return TRANSLATIONS[cls.__name__](where, exc)
    return _other(where, exc)


def _not_found(where: str, exc: Exception) -> LakebedError:
    if _is_missing_bucket(exc):
        return _no_bucket(where, exc)
    return ObjectNotFoundError(f"No object {where!r}.")


def _is_missing_bucket(exc: Exception) -> bool:
    return "NoSuchBucket" in str(exc) or "ContainerNotFound" in str(exc)


def _no_bucket(where: str, exc: Exception) -> LakebedError:
    msg = f"The bucket of {where!r} does not exist: {_reason(exc)}"
    return StorageError(msg, hint="Create it, or check its name, the endpoint and the region.")


def _exists(where: str, exc: Exception) -> LakebedError:
    if "ConditionalRequestConflict" in str(exc):
        # S3 refuses to decide while another request for the key is in progress.
        msg = f"Another write to {where!r} was in progress, and this object was not written."
        return StorageError(msg, retryable=True)
    return ObjectExistsError(f"Object {where!r} exists.")


def _precondition(where: str, exc: Exception) -> LakebedError:
    if _is_missing_bucket(exc):
        return _no_bucket(where, exc)
    return PreconditionFailedError(f"Object {where!r} was changed or deleted since it was read.")


def _full(where: str, exc: Exception) -> LakebedError:
    hint = "This object was not written. Free some space, or raise the quota, and try again."
    return StorageFullError(f"No space to write {where!r}: {_reason(exc)}", hint=hint)


_CHECK_CREDENTIALS = "Check the credentials and their permissions."


def _denied(where: str, exc: Exception) -> LakebedError:
    if _QUOTA_MARK in str(exc):
        return _full(where, exc)
    msg = f"Access to {where!r} was denied: {_reason(exc)}"
    hint = _CHECK_CREDENTIALS
    if any(mark in str(exc) for mark in _EXPIRED_MARKS):
        msg = (
            f"Access to {where!r} was denied, because the credentials have expired: {_reason(exc)}"
        )
        hint = (
            "Renew them, for example with aws sso login, and try again. Keys and tokens that were "
            "given as options, by the environment or in a file need a repository that is opened again."
        )
    if "credential provider" in msg:
        hint = (
            "Log in with aws sso login, gcloud auth application-default login or az login, or "
            "give credentials by environment or storage options."
        )
    return AccessDeniedError(msg, hint=hint)


def _bad_name(where: str, exc: Exception) -> LakebedError:
    return InvalidNameError(f"Key {where!r} is not valid in this store: {_reason(exc)}")


def _bad_option(where: str, exc: Exception) -> LakebedError:
    return InvalidInputError(f"The store of {where!r} is not configured correctly: {_reason(exc)}")


def _unsupported(where: str, exc: Exception) -> LakebedError:
    msg = f"The store cannot do this for {where!r}: {_reason(exc)}"
    return ReadOnlyError(msg, hint="Use a service that supports If-Match and If-None-Match.")


def _unknown_outcome(where: str, exc: Exception) -> LakebedError:
    msg = f"The request for {where!r} ended without an answer: {_reason(exc)}"
    hint = "Check the network and the address of the service, such as the storage option endpoint."
    return StorageError(msg, hint=hint, retryable=True)


# The clouds' metadata services, which obstore asks for credentials if none were given.
_CREDENTIAL_MARKS = ("169.254.169.254", "metadata.google.internal", "token request")


def _other(where: str, exc: Exception) -> LakebedError:
    """Return the error for an HTTP status that obstore has no class for."""
    status, text = _status(exc), _reason(exc)
    if _is_missing_bucket(exc):
        return _no_bucket(where, exc)
    if any(mark in text for mark in _CREDENTIAL_MARKS):
        hint = "Give credentials by environment or storage options; for public data skip_signature."
        return AccessDeniedError(f"No credentials were found: {text}", hint=hint)
    if "builder error" in text:
        msg = f"The endpoint cannot be used: {text}"
        hint = (
            "For an http:// endpoint set the storage option allow_http=true, by --storage-option or "
            "in Python; for S3 also the variable AWS_ALLOW_HTTP=true."
        )
        return StorageError(msg, hint=hint)
    if any(mark in text for mark in _EXPIRED_MARKS):
        return _denied(where, exc)  # S3 answers 400
    if status == _HTTP_INSUFFICIENT_STORAGE or _QUOTA_MARK in text:
        return _full(where, exc)
    if status in _HTTP_THROTTLED:
        msg = f"The service limits the rate of requests, at {where!r}: {text}"
        return ThrottledError(msg, retryable=True)
    if status == _HTTP_NOT_IMPLEMENTED:
        return _unsupported(where, exc)
    if status is None or status >= _HTTP_SERVER_ERROR or status == _HTTP_REQUEST_TIMEOUT:
        return _unknown_outcome(where, exc)
    return StorageError(f"The service refused the request for {where!r}: {text}")


TRANSLATIONS: Mapping[str, Callable[[str, Exception], LakebedError]] = {
    "AlreadyExistsError": _exists,
    "BaseError": _unknown_outcome,
    "FileNotFoundError": _not_found,  # obstore raises the built-in one
    "GenericError": _other,
    "InvalidPathError": _bad_name,
    "JoinError": _unknown_outcome,
    "NotFoundError": _not_found,
    "NotImplementedError": _unsupported,  # obstore raises the built-in one
    "NotModifiedError": _precondition,
    "NotSupportedError": _unsupported,
    "PermissionDeniedError": _denied,
    "PreconditionError": _precondition,
    "UnauthenticatedError": _denied,
    "UnknownConfigurationKeyError": _bad_option,
    "ValueError": _bad_name,  # obstore's path parser
}

"""An index in a DynamoDB table, for any number of machines.

A file has one item for each day that it touches (more than 30 days: one item under `long`). They
are records of version 0 of the record format, including all keys, so that other readers of such a
table find them by time and by work id. The first item represents the file: it is also in the index
by latest start, and a query by work id returns only this one. One small item more, under `id:<id>`,
holds no record: it names the others, so that a change or a removal leaves none behind. All items of
a file change in one transaction.

With the option `daily`, a file of more than 30 days has an item for each of its days next to the
one under `long`. They are only for other readers, which know only keys of days; this class does not
read them. A transaction is limited to 100 items, so they are written after the others and removed
before them, each time on condition that the small item is unchanged: it names all that may exist.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import re
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.query import ArchiveQuery, Position
from lakebed.archive.record import (
    LONG_BUCKET,
    MAX_BUCKETS,
    ArchiveRecord,
    time_index_key,
    work_id_index_key,
)
from lakebed.archive.times import DAY_MS, time_bucket, time_buckets
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    StorageError,
    ThrottledError,
)
from lakebed.model.locations import check_endpoint, refuse_credentials

MAX_QUERY_BUCKETS = 3_660  # ten years; each day is a request

_WORK_ID_INDEX = "work-id-index"
_LATEST_INDEX = "latest-index"
_ATTEMPTS = 8
_FIRST_WAIT_S = 0.02
_TABLE_DEADLINE_S = 300.0
_OPTIONS = frozenset({"region", "endpoint", "daily"})
_YES, _NO = "true", "false"
_MAX_ACTIONS = 100  # in a transaction
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")

_ATTRIBUTES = {
    "time_index_key": "S",
    "range_key": "S",
    "work_id_index_key": "S",
    "what_where_key": "S",
    "start": "N",
}
_TABLE_KEYS = ("time_index_key", "range_key")
_INDEX_KEYS = {
    _WORK_ID_INDEX: ("work_id_index_key", "range_key"),
    _LATEST_INDEX: ("what_where_key", "start"),
}

_Item = dict[str, Any]


class DynamoDbIndex(ArchiveIndex):
    """An index in a table, which `create` creates."""

    kind = "dynamodb"

    def __init__(self, url: str) -> None:
        """Open the index; nothing is sent yet.

        Args:
            url: `dynamodb://TABLE?region=REGION&endpoint=URL&daily=true`; all options may be left
                out, credentials come from the environment, as boto3 describes. With `daily`, files
                of more than 30 days have a record for each day too, for other programs.

        Raises:
            InvalidInputError: The URL names no table or contains a key, or an option is unknown or
                cannot be used.
            MissingDependencyError: boto3 is not installed.
        """
        parts = urlsplit(refuse_credentials(url))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if "endpoint" in options:
            check_endpoint("endpoint", options["endpoint"])
        is_table = _TABLE_NAME.fullmatch(parts.netloc) is not None
        if parts.scheme != "dynamodb" or not is_table or parts.path not in {"", "/"}:
            msg = f"{url!r} is not the URL of a DynamoDB table."
            raise InvalidInputError(msg, hint="Write it as dynamodb://TABLE?region=eu-west-1.")
        if not _OPTIONS.issuperset(options):
            msg = f"{url!r} has the options {sorted(set(options) - _OPTIONS)}."
            raise InvalidInputError(msg, hint=f"Known options: {sorted(_OPTIONS)}.")
        if options.get("daily", _NO) not in (_YES, _NO):
            msg = f"{url!r} has the option daily={options['daily']!r}."
            raise InvalidInputError(msg, hint=f"Give {_YES} or {_NO}.")
        self._table = parts.netloc
        query = f"?{urlencode(options, quote_via=quote)}" if options else ""
        self.url = f"dynamodb://{self._table}{query}"
        self._boto3 = _import_boto3(self.url)
        self._options = options
        self._client: Any = None

    def __reduce__(self) -> tuple[type[DynamoDbIndex], tuple[str]]:
        return DynamoDbIndex, (self.url,)

    def _create(self) -> None:
        with self._translating():
            description = self._describe() or self._create_table()
            deadline = time.monotonic() + _TABLE_DEADLINE_S
            while not _is_active(description):
                if time.monotonic() > deadline:
                    msg = f"{self.url} did not become active in {_TABLE_DEADLINE_S:.0f} s."
                    raise StorageError(msg, retryable=True)
                time.sleep(1)
                description = self._describe() or {}
        self._check_keys(description)

    def _exists(self) -> bool:
        with self._translating():
            return self._describe() is not None

    def _describe(self) -> dict[str, Any] | None:
        client = self._open()
        try:
            table: dict[str, Any] = client.describe_table(TableName=self._table)["Table"]
        except client.exceptions.ResourceNotFoundException:
            return None
        return table

    def _create_table(self) -> dict[str, Any]:
        client = self._open()
        # Another process may create it at the same time.
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            client.create_table(
                TableName=self._table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": kind}
                    for name, kind in _ATTRIBUTES.items()
                ],
                KeySchema=_key_schema(_TABLE_KEYS),
                GlobalSecondaryIndexes=[
                    {
                        "IndexName": name,
                        "KeySchema": _key_schema(keys),
                        "Projection": {"ProjectionType": "ALL"},
                    }
                    for name, keys in _INDEX_KEYS.items()
                ],
            )
        return self._describe() or {}

    def _check_keys(self, description: Mapping[str, Any]) -> None:
        indices = description.get("GlobalSecondaryIndexes", [])
        keys_by_index = {index["IndexName"]: _keys_of(index) for index in indices}
        missing = [name for name, keys in _INDEX_KEYS.items() if keys_by_index.get(name) != keys]
        if _keys_of(description) != _TABLE_KEYS or missing:
            msg = f"The table of {self.url} has other keys, or lacks the indices {missing}."
            raise InvalidInputError(msg, hint="Give the archive a table of its own.")

    def _put(self, records: Iterable[ArchiveRecord]) -> None:
        for record in records:
            pointer, day_items = _items_of(record)
            if self._options.get("daily") == _YES:
                _note_days(pointer, record)
            self._swap(record.id, [pointer, *day_items])
            self._put_days(pointer, record)

    def _delete(self, ids: Iterable[str]) -> None:
        for file_id in ids:
            self._swap(file_id, [])

    def _swap(self, file_id: str, new_items: Sequence[_Item]) -> None:
        """Replace the items of a file by new ones, all or nothing."""
        for attempt in range(_ATTEMPTS):
            old_files = self._file_items(file_id)
            if not old_files and not new_items:
                return
            try:
                kept = {key for item in new_items for key in _keys_of_days(item)}
                for old in old_files:
                    self._delete_days(old, kept)
                self._write(old_files, new_items)
            except _LostRaceError:
                # Jitter keeps two writers of one file from colliding repeatedly.
                time.sleep(_FIRST_WAIT_S * 2**attempt * random.random())
            else:
                return
        msg = f"Other writers of the file {file_id!r} in {self.url} were repeatedly faster."
        raise StorageError(msg, retryable=True)

    def _write(self, old_files: Sequence[_Item], new_items: Sequence[_Item]) -> None:
        written = {(item["time_index_key"], item["range_key"]) for item in new_items}
        tokens = {item["range_key"]: item["token"] for item in old_files}
        actions = []
        for item in new_items:
            put: dict[str, Any] = {"TableName": self._table, "Item": self._serialized(item)}
            if "token" in item:
                put.update(self._condition(tokens.get(item["range_key"])))
            actions.append({"Put": put})
        for old in old_files:
            stale = [(old["time_index_key"], old["range_key"])]
            stale += [(key, old["range_key"]) for key in old["day_keys"]]
            for key in stale:
                if key in written:
                    continue
                delete: dict[str, Any] = {"TableName": self._table, "Key": self._key(*key)}
                if key == stale[0]:
                    delete.update(self._condition(old["token"]))
                actions.append({"Delete": delete})
        self._transact(actions)

    def _put_days(self, pointer: _Item, record: ArchiveRecord) -> None:
        """Write the records of days that a pointer names, while it is the current one."""
        puts = [
            {"Put": {"TableName": self._table, "Item": self._serialized(_to_decimals(document))}}
            for document in map(record.to_document, _keys_of_days(pointer))
        ]
        # A writer that has changed the file meanwhile writes the records of its days.
        with contextlib.suppress(_LostRaceError):
            self._transact_while(pointer, puts)

    def _delete_days(self, pointer: _Item, kept: Container[str]) -> None:
        """Remove the records of days that a pointer names, except those under kept keys."""
        keys = [key for key in _keys_of_days(pointer) if key not in kept]
        deletes = [
            {"Delete": {"TableName": self._table, "Key": self._key(key, pointer["range_key"])}}
            for key in keys
        ]
        self._transact_while(pointer, deletes)

    def _transact_while(self, pointer: _Item, actions: Sequence[dict[str, Any]]) -> None:
        """Run actions in as many transactions as needed, each only while the pointer exists."""
        check = {
            "TableName": self._table,
            "Key": self._key(pointer["time_index_key"], pointer["range_key"]),
            **self._condition(pointer["token"]),
        }
        room = _MAX_ACTIONS - 1
        for start in range(0, len(actions), room):
            self._transact([{"ConditionCheck": check}, *actions[start : start + room]])

    def _key(self, time_key: str, range_key: str) -> _Item:
        return self._serialized(dict(zip(_TABLE_KEYS, (time_key, range_key), strict=True)))

    def _transact(self, actions: Sequence[dict[str, Any]]) -> None:
        client = self._open()
        with self._translating():
            try:
                client.transact_write_items(TransactItems=actions)
            except client.exceptions.TransactionCanceledException as exc:
                reasons = {
                    reason.get("Code") for reason in exc.response.get("CancellationReasons", [])
                }
                if reasons & {"ConditionalCheckFailed", "TransactionConflict"}:
                    raise _LostRaceError from exc
                raise

    def _condition(self, token: str | None) -> dict[str, Any]:
        if token is None:
            return {"ConditionExpression": "attribute_not_exists(time_index_key)"}
        return {
            "ConditionExpression": "#t = :t",
            "ExpressionAttributeNames": {"#t": "token"},
            "ExpressionAttributeValues": self._serialized({":t": token}),
        }

    def _find(self, file_id: str) -> ArchiveRecord | None:
        for _ in range(_ATTEMPTS):
            pointers = self._file_items(file_id)
            items = [item for pointer in pointers for item in self._pointed_at(pointer)]
            # If the record of a pointer is missing, another writer of the file was faster.
            if len(items) == len(pointers):
                records = [self._record_of(item) for item in items]
                return max(records, key=lambda record: record.create_time_ms, default=None)
        msg = f"{self.url} has a damaged item {_file_key(file_id)!r}: its record is missing."
        raise CorruptMetadataError(msg, hint="Rebuild the index with reindex.")

    def _pointed_at(self, pointer: _Item) -> list[_Item]:
        """Return the item that represents a file, as a list; empty if it no longer exists."""
        if "metadata" in pointer:  # of an older release, whose pointers hold the record
            return [pointer]
        key = self._key(pointer["day_keys"][0], pointer["range_key"])
        with self._translating():
            answer = self._open().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        return [self._deserialized(answer["Item"])] if "Item" in answer else []

    def _file_items(self, file_id: str) -> list[_Item]:
        return list(self._query(("time_index_key", _file_key(file_id)), is_consistent=True))

    def _records(self) -> Iterator[ArchiveRecord]:
        for item in self._pages("scan", ConsistentRead=True):
            record = self._standing_for(item)
            if record is not None:
                yield record

    def _standing_for(self, item: _Item) -> ArchiveRecord | None:
        """Return the record of a file if the item is the one that represents it."""
        if "metadata" not in item:
            return None
        record = self._record_of(item)
        if "token" in item:  # of an older release, whose pointers hold the record
            return record
        # Day items of that older release have no key in the index by work id.
        is_first = item["time_index_key"] == record.time_index_keys[0]
        return record if is_first and "work_id_index_key" in item else None

    def _page(
        self, query: ArchiveQuery, after: Position | None, limit: int
    ) -> Sequence[tuple[ArchiveRecord, Position]]:
        if after is not None and not isinstance(after[0], str):
            msg = f"The cursor has the position {after[0]!r}, which is not a key."
            raise InvalidInputError(msg, hint="Use next_cursor of the page before, unchanged.")
        hits: list[tuple[ArchiveRecord, Position]] = []
        answers = (
            self._by_time(query, after) if query.work_id is None else self._by_work(query, after)
        )
        for record, position in answers:
            hits.append((record, position))
            if len(hits) == limit:
                break
        return hits

    def _by_work(
        self, query: ArchiveQuery, after: Position | None
    ) -> Iterator[tuple[ArchiveRecord, Position]]:
        key = work_id_index_key(query.work_id or "", query.what)
        start = None
        if after is not None:
            start = {
                "time_index_key": after[0],
                "range_key": after[1],
                "work_id_index_key": key,
            }
        for item in self._query(
            ("work_id_index_key", key), index=_WORK_ID_INDEX, where=query.where, start=start
        ):
            record = self._standing_for(item)
            # The key of a file without work id may look like a work id.
            if record is not None and record.work_id == query.work_id:
                yield record, (item["time_index_key"], item["range_key"])

    def _by_time(
        self, query: ArchiveQuery, after: Position | None
    ) -> Iterator[tuple[ArchiveRecord, Position]]:
        first, last = query.interval
        days = time_buckets(first, last)
        if len(days) > MAX_QUERY_BUCKETS:
            msg = f"A query of {len(days):,} days is too long for {self.url}."
            raise InvalidInputError(msg, hint=f"Ask for at most {MAX_QUERY_BUCKETS:,} days.")
        keys = [time_index_key(bucket, query.what) for bucket in (LONG_BUCKET, *days)]
        if after is not None:
            if after[0] not in keys:
                msg = f"The cursor has the position {after[0]!r}, which is outside the query."
                raise InvalidInputError(msg, hint="Use next_cursor of the page before, unchanged.")
            keys = keys[keys.index(str(after[0])) :]
        for key in keys:
            start = None
            if after is not None and key == after[0]:
                start = {"time_index_key": key, "range_key": after[1]}
            for item in self._query(
                ("time_index_key", key), where=query.where, start=start, is_consistent=True
            ):
                record = self._record_of(item)
                is_asked_for = record.metadata.start <= last and record.last_ms >= first
                if is_asked_for and key == _first_key(record, days):
                    yield record, (key, item["range_key"])

    def _latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool
    ) -> ArchiveRecord | None:
        best: ArchiveRecord | None = None

        def later(record: ArchiveRecord) -> ArchiveRecord | None:
            is_visible = retracted or record.retraction is None
            return _later(best, record, first_ms) if is_visible else best

        # Files that began earlier and still reach into the interval are under `long`.
        earliest = first_ms - MAX_BUCKETS * DAY_MS
        by_start = self._query(
            ("what_where_key", f"{what}:{where}"),
            index=_LATEST_INDEX,
            between=("start", earliest, last_ms),
            is_forward=False,
        )
        for item in by_start:
            if best is not None and int(item["start"]) < best.metadata.start:
                break
            best = later(self._record_of(item))
        if best is None:
            long_key = time_index_key(LONG_BUCKET, what)
            for item in self._query(("time_index_key", long_key), where=where, is_consistent=True):
                record = self._record_of(item)
                if record.metadata.start <= last_ms:
                    best = later(record)
        return best

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _query(
        self,
        key: tuple[str, str],
        *,
        index: str | None = None,
        where: str | None = None,
        between: tuple[str, int, int] | None = None,
        start: _Item | None = None,
        is_forward: bool = True,
        is_consistent: bool = False,
    ) -> Iterator[_Item]:
        """Yield the items of a hash key, in the order of their range keys."""
        condition, names, values = "#h = :h", {"#h": key[0]}, {":h": key[1]}
        more: dict[str, Any] = {"ScanIndexForward": is_forward}
        if where is not None:
            condition += " AND begins_with(#r, :r)"
            names["#r"], values[":r"] = "range_key", f"{where}:"
        if between is not None:
            condition += " AND #b BETWEEN :low AND :high"
            names["#b"] = between[0]
            more["ExpressionAttributeValues"] = {
                ":low": {"N": str(between[1])},
                ":high": {"N": str(between[2])},
            }
        if index is not None:
            more["IndexName"] = index
        if is_consistent:
            more["ConsistentRead"] = True
        if start is not None:
            more["ExclusiveStartKey"] = self._serialized(start)
        more["ExpressionAttributeValues"] = {
            **self._serialized(values),
            **more.get("ExpressionAttributeValues", {}),
        }
        return self._pages(
            "query",
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            **more,
        )

    def _pages(self, operation: str, **arguments: Any) -> Iterator[_Item]:
        call: Callable[..., Mapping[str, Any]] = getattr(self._open(), operation)
        while True:
            with self._translating():
                answer = call(TableName=self._table, **arguments)
            yield from (self._deserialized(item) for item in answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _open(self) -> Any:
        if self._client is None:
            with self._translating():
                self._client = self._boto3.client(
                    "dynamodb",
                    region_name=self._options.get("region"),
                    endpoint_url=self._options.get("endpoint"),
                )
        return self._client

    def _serialized(self, values: Mapping[str, Any]) -> _Item:
        types = importlib.import_module("boto3.dynamodb.types")
        serialize = types.TypeSerializer().serialize
        try:
            json.dumps(values, default=str, ensure_ascii=False).encode()  # is it Unicode?
            return {name: serialize(value) for name, value in values.items()}
        except (TypeError, ValueError, ArithmeticError) as exc:
            msg = f"DynamoDB cannot hold this: {exc}"
            raise InvalidInputError(msg, hint="Use numbers of at most 38 digits.") from exc

    def _deserialized(self, item: Mapping[str, Any]) -> _Item:
        types = importlib.import_module("boto3.dynamodb.types")
        deserialize = types.TypeDeserializer().deserialize
        return {name: deserialize(value) for name, value in item.items()}

    def _record_of(self, item: _Item) -> ArchiveRecord:
        try:
            return ArchiveRecord.from_document(_to_plain(item))
        except (KeyError, TypeError, ValueError) as exc:
            msg = f"{self.url} has a damaged item {item.get('range_key')!r}: {exc}"
            raise CorruptMetadataError(msg, hint="Rebuild the index with reindex.") from exc

    def _translating(self) -> contextlib.AbstractContextManager[None]:
        return translating_boto_errors(self.url)


class _LostRaceError(Exception):
    """Another writer changed the items of the file first."""


def _later(
    best: ArchiveRecord | None, record: ArchiveRecord, first_ms: int
) -> ArchiveRecord | None:
    if record.last_ms < first_ms:
        return best
    if best is None:
        return record
    return max(
        best,
        record,
        key=lambda candidate: (candidate.metadata.start, candidate.create_time_ms, candidate.id),
    )


def _file_key(file_id: str) -> str:
    return f"id:{file_id}"


def _first_key(record: ArchiveRecord, days: range) -> str:
    """Return the one key under which a query of `days` returns a file."""
    if len(record.time_index_keys) == 1:
        return record.time_index_keys[0]
    return time_index_key(max(time_bucket(record.metadata.start), days.start), record.what)


def _items_of(record: ArchiveRecord) -> tuple[_Item, list[_Item]]:
    """Return the pointer item, and the items of the file's days."""
    day_items = [_to_decimals(document) for document in record.to_documents()]
    day_items[0]["what_where_key"] = f"{record.what}:{record.where}"
    day_items[0]["start"] = record.metadata.start
    pointer = {
        "time_index_key": _file_key(record.id),
        "range_key": record.range_key,
        "day_keys": list(record.time_index_keys),
        "token": uuid.uuid4().hex,
    }
    return pointer, day_items


def _note_days(pointer: _Item, record: ArchiveRecord) -> None:
    """Add the records of the days of a long file to its pointer.

    Raises:
        InvalidInputError: There are too many days.
    """
    days = record.long_days
    if len(days) > MAX_QUERY_BUCKETS:
        msg = f"File {record.path!r} of {len(days):,} days is too long for a record a day."
        hint = f"Cut it to {MAX_QUERY_BUCKETS:,} days, or remove daily=true from the index's URL."
        raise InvalidInputError(msg, hint=hint)
    if days:
        pointer["daily"] = {"what": record.what, "first": days.start, "last": days.stop - 1}


def _keys_of_days(item: _Item) -> list[str]:
    """Return the keys of the records of days that a pointer names; none for another item."""
    daily = item.get("daily")
    if daily is None:
        return []
    days = range(int(daily["first"]), int(daily["last"]) + 1)
    return [time_index_key(day, daily["what"]) for day in days]


def _to_decimals(document: Mapping[str, Any]) -> _Item:
    """Convert floats to decimals: DynamoDB does not accept floats."""
    item: _Item = json.loads(json.dumps(document), parse_float=Decimal)
    return item


def _to_plain(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case dict():
            return {name: _to_plain(entry) for name, entry in value.items()}
        case list():
            return [_to_plain(entry) for entry in value]
    return value


def _key_schema(keys: tuple[str, str]) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(keys, ("HASH", "RANGE"), strict=True)
    ]


def _keys_of(description: Mapping[str, Any]) -> tuple[str, ...]:
    schema = sorted(description.get("KeySchema", []), key=lambda element: str(element["KeyType"]))
    return tuple(element["AttributeName"] for element in schema)


def _is_active(description: Mapping[str, Any]) -> bool:
    states = [description.get("TableStatus")]
    states += [index.get("IndexStatus") for index in description.get("GlobalSecondaryIndexes", [])]
    return all(state in {None, "ACTIVE"} for state in states) and states[0] is not None


def _import_boto3(purpose: str) -> ModuleType:
    try:
        return importlib.import_module("boto3")
    except ImportError as exc:
        raise MissingDependencyError.for_extra("boto3", "dynamodb", purpose) from exc


_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
_THROTTLED = {
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
}
_MISSING = {
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
}
_SERVER_ERROR = 500


@contextlib.contextmanager
def translating_boto_errors(where: str) -> Iterator[None]:
    """Translate errors of boto3 about `where` into the most specific Lakebed error."""
    exceptions = importlib.import_module("botocore.exceptions")
    try:
        yield
    except LakebedError:
        raise
    except UnicodeEncodeError as exc:
        raise InvalidInputError(f"{where} cannot hold this: {exc}", hint="Use UTF-8.") from exc
    except exceptions.ClientError as exc:
        raise _translated(where, exc) from exc
    except exceptions.ParamValidationError as exc:
        raise InvalidInputError(f"{where} does not accept this request: {exc}") from exc
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as exc:
        hint = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile."
        raise AccessDeniedError(f"No credentials for {where}: {exc}.", hint=hint) from exc
    except exceptions.NoRegionError as exc:
        raise InvalidInputError(
            f"No region for {where}.", hint="Add ?region=… to its URL, or set AWS_REGION."
        ) from exc
    except (exceptions.BotoCoreError, ValueError) as exc:
        raise StorageError(f"{where} did not answer: {exc}", retryable=True) from exc


def _translated(where: str, exc: Any) -> LakebedError:
    code = exc.response.get("Error", {}).get("Code", "")
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _DENIED:
        return AccessDeniedError(f"Access to {where} was denied: {exc}")
    if code in _THROTTLED:
        return ThrottledError(f"{where} throttles requests: {exc}", retryable=True)
    if code in _MISSING:
        hint = "Make it with `lakebed archive init`, or check name, region and endpoint."
        return StorageError(f"{where} does not exist.", hint=hint)
    if code == "ValidationException":
        return InvalidInputError(f"{where} does not accept this value or request: {exc}")
    return StorageError(f"{where} failed: {exc}", retryable=status >= _SERVER_ERROR)

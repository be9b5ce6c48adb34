"""Rows as files to download: pieces of bytes, made as they are sent."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass

import anyio
import pyarrow as pa
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from lakebed.arrow.as_python import plain_columns
from lakebed.common.plain import to_cell, to_json
from lakebed.errors import LakebedError
from lakebed.web.limits import STALLED_SECONDS

_log = logging.getLogger(__name__)

_ROWS_A_PIECE = 4096
_ROWS_A_GROUP = 131_072  # of a row group of Parquet
_BYTES_A_GROUP = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A format of downloads.

    Attributes:
        label: Name for people.
        suffix: Suffix of the files.
        media_type: Media type of the files.
        pieces: Returns the pieces of a file with the rows of a reader.
    """

    label: str
    suffix: str
    media_type: str
    pieces: Callable[[pa.RecordBatchReader], Generator[bytes, None, None]]


def csv_pieces(rows: pa.RecordBatchReader) -> Generator[bytes, None, None]:
    """Yield rows as CSV with a header, as `lakebed query -o csv` writes it."""
    header = (",".join(map(to_cell, rows.schema.names)) + "\n").encode()
    for columns in _columns_of(rows):
        lines = zip(*([to_cell(value) for value in column] for column in columns), strict=True)
        text = "".join(",".join(line) + "\n" for line in lines)
        yield header + text.encode("utf-8", "backslashreplace")
        header = b""
    yield header


def jsonl_pieces(rows: pa.RecordBatchReader) -> Generator[bytes, None, None]:
    """Yield rows as JSON lines, as `lakebed query -o jsonl` writes them."""
    names = rows.schema.names
    for columns in _columns_of(rows):
        lines = (
            to_json(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)
        )
        yield "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def parquet_pieces(rows: pa.RecordBatchReader) -> Generator[bytes, None, None]:
    """Yield rows as a Parquet file, one row group after the other."""
    import pyarrow.parquet as pq

    sink = _Sink()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd") as writer:
        held: list[pa.RecordBatch] = []
        for batch in rows:
            held.append(batch)
            count, size = sum(each.num_rows for each in held), sum(each.nbytes for each in held)
            if count >= _ROWS_A_GROUP or size >= _BYTES_A_GROUP:
                writer.write_table(pa.Table.from_batches(held), row_group_size=_ROWS_A_GROUP)
                held = []
                yield sink.taken()
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=_ROWS_A_GROUP)
    yield sink.taken()


KINDS = {
    "csv": FileKind(label="CSV", suffix="csv", media_type="text/csv", pieces=csv_pieces),
    "jsonl": FileKind(
        label="JSON lines", suffix="jsonl", media_type="application/x-ndjson", pieces=jsonl_pieces
    ),
    "parquet": FileKind(
        label="Parquet",
        suffix="parquet",
        media_type="application/vnd.apache.parquet",
        pieces=parquet_pieces,
    ),
}


class Download(StreamingResponse):
    """Rows on their way to a client, whose connection is cut if they cannot be read to the end."""

    def __init__(
        self,
        kind: FileKind,
        rows: pa.RecordBatchReader,
        headers: Mapping[str, str],
        *,
        on_end: Callable[[], None],
    ) -> None:
        """Read the first rows, so that there is a page where none can be read.

        Args:
            kind: Format of the file.
            rows: The rows, which are closed at the end.
            headers: Headers of the answer.
            on_end: Called at the end, also after a failure, and if the first rows cannot be read.

        Raises:
            LakebedError: The first rows cannot be read.
        """
        self._rows = rows
        self._on_end = on_end
        self._pieces = kind.pieces(rows)
        try:
            first = next(self._pieces, b"")
        except BaseException:
            self._end()
            raise
        pieces = itertools.chain([first], self._pieces)
        super().__init__(pieces, headers=dict(headers), media_type=kind.media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the rows, and end the read."""

        async def send_soon(message: Message) -> None:
            with anyio.fail_after(STALLED_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, send_soon)
        except (LakebedError, TimeoutError) as exc:
            # The status is sent already. Ending here lets the server close the connection, so that
            # the client misses the end of the file.
            _log.error("download cut off path=%r error=%s", scope["path"], exc)
        finally:
            self._end()

    def _end(self) -> None:
        try:
            self._pieces.close()
            self._rows.close()
        finally:
            self._on_end()


def _columns_of(rows: pa.RecordBatchReader) -> Iterator[list[list[object]]]:
    for batch in rows:
        for start in range(0, batch.num_rows, _ROWS_A_PIECE):
            yield plain_columns(batch.slice(start, _ROWS_A_PIECE))


class _Sink(io.RawIOBase):
    """A file that is written once, and whose bytes are taken as they come."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]  # any buffer
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        piece, self._pieces = b"".join(self._pieces), []
        return piece

"""A directory as a bucket of S3 that is far away: as much of the protocol as readers ask.

Each request waits for a while, and any number wait side by side, so that what is measured is how
often a reader waits, and not how fast a server is. `GET /-/reset?ms=20` sets the delay and forgets
the counts, `GET /-/counts` returns them. Prints its port, and ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import json
import os
import re
import sys
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Answer = tuple[int, dict[str, str], bytes]
_PAGE = 1_000


class Bucket:
    """Files of a directory, which is not written to; each bucket of the URL is the same one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keys: list[str] = []
        self._sizes: dict[str, int] = {}
        self._etags: dict[str, str] = {}
        self.delay_s = 0.0
        self.counts: collections.Counter[str] = collections.Counter()

    def look(self) -> None:
        """Find the files that there are now."""
        stats = {
            path.relative_to(self._root).as_posix(): path.stat()
            for path in self._root.rglob("*")
            if path.is_file()
        }
        self._sizes = {key: stat.st_size for key, stat in stats.items()}
        self._etags = {key: f'"{stat.st_mtime_ns:032x}"' for key, stat in stats.items()}
        self._keys = sorted(self._sizes)

    def answer(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        """Return status, headers and body."""
        url = urlsplit(target)
        key = unquote(url.path).lstrip("/").partition("/")[2]
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if method == "GET" and not key:
            self.counts["LIST"] += 1
            return 200, {"content-type": "application/xml"}, self._list(query)
        self.counts[method] += 1
        if key not in self._sizes:
            return 404, {}, b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>"
        size = self._sizes[key]
        told = {
            "etag": self._etags[key],
            "last-modified": formatdate(1_700_000_000, usegmt=True),
            "content-type": "binary/octet-stream",
            "accept-ranges": "bytes",
        }
        if method == "HEAD":
            return 200, {**told, "content-length": str(size)}, b""
        first, last, status = 0, size - 1, 200
        if match := re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", "")):
            status = 206
            if match[1]:
                first, last = int(match[1]), min(int(match[2] or size), size - 1)
            else:
                first = max(0, size - int(match[2]))
            told["content-range"] = f"bytes {first}-{last}/{size}"
        with (self._root / key).open("rb") as file:
            return status, told, os.pread(file.fileno(), last - first + 1, first)

    def _list(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        place = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
        rows, shown, folders = [], 0, []
        last, limit = "", min(_PAGE, int(query.get("max-keys", _PAGE)))
        while place < len(self._keys) and shown < limit:
            key = self._keys[place]
            if not key.startswith(prefix):
                break
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folder = prefix + rest.partition(delimiter)[0] + delimiter
                folders.append(folder)
                place = bisect.bisect_left(self._keys, folder + "\U0010ffff")
                last = self._keys[place - 1]
            else:
                rows.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{self._sizes[key]}</Size>"
                    f"<LastModified>2023-11-14T22:13:20.000Z</LastModified>"
                    f"<ETag>{self._etags[key]}</ETag></Contents>"
                )
                place, last = place + 1, key
            shown += 1
        more = place < len(self._keys) and self._keys[place].startswith(prefix)
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
        rows += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders
        ]
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>lake</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{shown}</KeyCount>"
            f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
            f"{''.join(rows)}</ListBucketResult>"
        ).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                lines = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in lines}
                await reader.readexactly(int(headers.get("content-length", 0)))
                if target.startswith("/-/"):
                    status, told, body = self._tell(target)
                else:
                    await asyncio.sleep(self.delay_s)
                    status, told, body = self.answer(method, target, headers)
                told.setdefault("content-length", str(len(body)))
                text = "".join(f"{name}: {value}\r\n" for name, value in told.items())
                writer.write(f"HTTP/1.1 {status} .\r\n{text}\r\n".encode("latin-1") + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _tell(self, target: str) -> Answer:
        url = urlsplit(target)
        if url.path == "/-/reset":
            self.delay_s = float(parse_qs(url.query)["ms"][0]) / 1000
            self.counts.clear()
            self.look()
        return 200, {}, json.dumps(self.counts).encode()


async def main() -> None:
    """Serve the directory that is named."""
    bucket = Bucket(Path(sys.argv[1]))
    server = await asyncio.start_server(bucket.serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    sys.stdout.flush()
    os._exit(0)  # connections are open, and nobody waits for their end


if __name__ == "__main__":
    asyncio.run(main())

"""What tests run in processes of their own: many that push, and an uploader that is killed."""

import io
import os
import signal
import sys

import lakebed
from lakebed.archive import UploadQueue

T0 = 1426809600000


def push_many(root: str, number: str, count: str) -> None:
    archive = lakebed.open_archive(root)
    for one in range(int(count)):
        archive.push(
            io.BytesIO(f"{number}-{one}".encode()),
            path=f"/{number}/{one}",
            where=f"box-{number}",
            what="log",
            start=T0 + one,
        )
        # Some files are everybody's.
        archive.push(
            io.BytesIO(b"same"), path="/same", where="all", what="log", start=T0, id=f"same-{one}"
        )


def upload(root: str, queue: str) -> None:
    archive = lakebed.open_archive(root)
    UploadQueue(queue).watch(archive, timeout_s=2, workers=2)


def upload_and_die(root: str, queue: str, step: str) -> None:
    """Upload until the third file, and be killed at a step of it."""
    archive = lakebed.open_archive(root)
    owner, name = {
        "before-content": (archive.store, "put_stream"),
        "before-index": (archive.index, "put"),
        "before-removal": (os, "unlink"),
    }[step]
    function, calls = getattr(owner, name), 0

    def count_and_die(*arguments: object, **options: object) -> object:
        nonlocal calls
        is_bundle = step != "before-removal" or str(arguments[0]).startswith(queue)
        calls += is_bundle
        if calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(owner, name, count_and_die)
    for _ in UploadQueue(queue).upload(archive):
        pass


if __name__ == "__main__":
    {"push_many": push_many, "upload": upload, "upload_and_die": upload_and_die}[sys.argv[1]](
        *sys.argv[2:]
    )

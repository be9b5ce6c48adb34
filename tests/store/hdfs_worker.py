"""Commits to a dataset on HDFS in children that are killed before one of their requests.

A line of input names the operation, its numbers and the request; the answer says what the request
was to be, and how the child ended.
"""

# ruff: noqa: T201 - printing is how it answers

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from lakebed.repository import Repository
from lakebed.store import open_store


def main(url: str, options: Mapping[str, str]) -> None:
    """Serve orders until the input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _commit_and_die(url, options, order, writer)
        os.close(writer)
        with os.fdopen(reader) as told:
            request = told.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([request, os.waitstatus_to_exitcode(status)]), flush=True)


def _commit_and_die(
    url: str, options: Mapping[str, str], order: Mapping[str, Any], writer: int
) -> None:
    status = 1
    try:
        store = open_store(url, storage_options=options)
        dataset = Repository(store).open("letters")
        send, numbers = store.tree._send, itertools.count(1)

        def send_or_die(method: str, address: str, **more: Any) -> Any:
            if next(numbers) == order["request"]:
                operation = address.partition("op=")[2].partition("&")[0]
                os.write(writer, f"{operation} {address.partition('?')[0]}".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            return send(method, address, **more)

        store.tree._send = send_or_die
        rows = [{"k": "abc"[n % 3], "n": n} for n in order["numbers"]]
        getattr(dataset, order["operation"])(rows)
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

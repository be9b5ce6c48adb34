"""A process that ends while threads of Arrow still read through files of Python."""

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import StorageError
from lakebed.store.last_reads import LastReads

PROGRAM = """
import sys, time
import lakebed
from lakebed.store.posix import PosixStore
from lakebed.testing import DelegatingStore

class Far(DelegatingStore):
    def _get_range(self, key, start, length):
        time.sleep(0.2)
        return super()._get_range(key, start, length)

numbers = lakebed.Repository(Far(PosixStore(sys.argv[1]))).open("numbers")
rows = {rows}
print(next(iter(rows)).num_rows)
"""


@pytest.mark.parametrize(
    "rows",
    ["numbers.record_batches()", "numbers.dataset().scanner(columns=['n']).to_batches()"],
)
def test_process_that_has_read_enough_ends_as_it_should(tmp_path: Path, rows: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("part", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by="part")
    numbers = lakebed.open_repository(tmp_path).create("numbers", descriptor)
    numbers.append([{"n": n, "part": part} for part in range(12) for n in range(5)])

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(rows=rows), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


def test_at_the_end_only_the_main_thread_reads() -> None:
    reads, errors = LastReads(), []

    def read() -> None:
        try:
            reads.check()
        except StorageError as exc:
            errors.append(exc.message)

    def in_a_thread() -> None:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()

    in_a_thread()
    assert not errors
    reads.end()
    read()
    assert not errors
    in_a_thread()
    assert errors == ["Cannot read: the process is exiting."]

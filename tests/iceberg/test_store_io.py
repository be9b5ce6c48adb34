"""What pyiceberg writes through a store of Lakebed is written when it is closed, and never later."""

from __future__ import annotations

import gc

import pytest

from lakebed.errors import ObjectNotFoundError, StorageError
from lakebed.store import open_store
from lakebed.tables.iceberg.store_io import StoreIO
from lakebed.testing import FailingStore

KEY = "metadata/a.avro"


def test_a_write_that_failed_is_not_made_when_its_stream_is_collected() -> None:
    inner = open_store("memory://failed-stream")
    stream = (
        StoreIO(FailingStore(inner, fail_on="put"), "s3://b").new_output(f"s3://b/{KEY}").create()
    )
    stream.write(b"manifest")

    with pytest.raises(StorageError):
        stream.close()
    del stream
    gc.collect()

    with pytest.raises(ObjectNotFoundError):
        inner.get(KEY)


def test_a_stream_that_nobody_has_closed_writes_nothing() -> None:
    store = open_store("memory://open-stream")
    output = StoreIO(store, "s3://b").new_output(f"s3://b/{KEY}")
    stream = output.create()
    stream.write(b"half a manif")

    del stream
    gc.collect()

    with pytest.raises(ObjectNotFoundError):
        store.get(KEY)
    with output.create() as whole:
        whole.write(b"manifest")
    assert (bytes(store.get(KEY).data), len(output)) == (b"manifest", 8)

"""A `FileIO` of pyiceberg over a store of Lakebed.

Metadata beside the data is read and written through the dataset's store, with its credentials.
"""

from __future__ import annotations

import io
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.errors import ObjectNotFoundError
from lakebed.store.base import Store


class StoreIO(FileIO):
    """Objects of a store, under the locations that readers of the table use."""

    def __init__(self, store: Store, root: str) -> None:
        super().__init__()
        self._store = store
        self._prefix = f"{root}/"

    def key(self, location: str) -> str:
        """Return the key of an object."""
        if not location.startswith(self._prefix):
            message = f"{location!r} is not in {self._prefix!r}"
            raise ValueError(message)
        return location[len(self._prefix) :]

    def new_input(self, location: str) -> InputFile:
        """Return an object to read."""
        return _Input(self._store, self.key(location), location)

    def new_output(self, location: str) -> OutputFile:
        """Return an object to write."""
        return _Output(self._store, self.key(location), location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete an object."""
        text = location if isinstance(location, str) else location.location
        self._store.delete([self.key(text)])


class _Input(InputFile):
    def __init__(self, store: Store, key: str, location: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key

    def __len__(self) -> int:
        return self._store.size(self._key)

    def exists(self) -> bool:
        try:
            self._store.size(self._key)
        except ObjectNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        data = bytes(self._store.get(self._key).data)
        if self.location.endswith(".avro"):
            # pyiceberg's compiled decoder trusts all lengths: damaged ones end the process.
            # It reads the file as it is, because its codecs also notice content that is cut.
            UncompressedAvro(io.BytesIO(data)).read()
        return io.BytesIO(data)


class _Output(OutputFile):
    def __init__(self, store: Store, key: str, location: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self._store, self._key, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002, FBT001, FBT002 - same
        return _Writing(self)

    def write(self, data: bytes) -> None:
        self._store.put(self._key, data)
        self._length = len(data)


class _Writing(io.BytesIO):
    """A buffer that is written as an object when it is closed without an error."""

    def __init__(self, output: _Output) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        # First: a stream that a failed write left open would be written later, as garbage.
        super().close()
        self._output.write(data)

    def __del__(self) -> None:
        """Write nothing; Python's own streams are closed here."""
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

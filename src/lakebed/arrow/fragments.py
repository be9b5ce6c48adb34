"""Planned Parquet files as fragments that Arrow scans from a store, grouped by how they are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.formats.parquet import INT96_UNIT
from lakebed.arrow.intact import open_intact, open_verified, translating, verify_footers
from lakebed.arrow.older import OlderFiles
from lakebed.errors import ObjectNotFoundError, ReadOnlyError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.layout import Layout
from lakebed.model.lineage import Reading, simplify
from lakebed.model.predicate import FALSE, TRUE, Predicate, roots_of
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import join
from lakebed.plan.plan import DataFile, Scan, Share
from lakebed.store.base import Store
from lakebed.store.last_reads import READS

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyarrow import fs

OpenInput = Callable[[str], pa.NativeFile]


@dataclass(frozen=True, slots=True)
class Group:
    """Files of a plan that are read in the same way.

    Attributes:
        older: Conversion of the files to the current schema.
        residual: Filter for their rows; TRUE if all rows are wanted.
    """

    older: OlderFiles
    residual: Predicate
    files: list[DataFile]


def grouped(store: Store, plan: Scan, names: Sequence[str]) -> list[Group]:
    """Group the files of a plan; groups without a filter come first.

    Args:
        store: Store that holds the files.
        plan: Scan whose files are grouped.
        names: Requested columns.
    """
    layout = plan.layout
    by_schema: dict[int | None, list[DataFile]] = {}
    for file in plan.files:
        by_schema.setdefault(file.schema_number, []).append(file)
    groups: list[Group] = []
    for number, of_schema in by_schema.items():
        older_files = OlderFiles.of(layout, number)
        # The readers of other formats know the fields of a file, and fill in defaults themselves.
        is_parquet = find_reader(layout.descriptor.format) is None
        asked = _alike(store, older_files, of_schema) if is_parquet else [(older_files, of_schema)]
        for older, alike in asked:
            condition: Predicate = TRUE
            if plan.residual is not None:
                condition = simplify(plan.residual, older.reading.constants)
            for residual, files in (
                (TRUE, [file for file in alike if not file.is_filtered]),
                (condition, [file for file in alike if file.is_filtered]),
            ):
                needed = (*names, *roots_of(residual, layout.predicate_types))
                _add(groups, Group(older.for_columns(needed), residual, files))
    return sorted(groups, key=lambda group: group.residual != TRUE)


def _add(groups: list[Group], group: Group) -> None:
    """Add a group, or its files to an existing group that is read in the same way."""
    if not group.files or group.residual == FALSE:
        return
    for known in groups:
        if known.residual == group.residual and known.older.reads_as(group.older):
            known.files.extend(group.files)
            return
    groups.append(group)


def _alike(
    store: Store, older: OlderFiles, files: list[DataFile]
) -> Iterator[tuple[OlderFiles, list[DataFile]]]:
    """Group the files of one schema; those of other tools by the columns that they hold.

    Arrow reads a field that a file lacks as null, so footers are read only where a field has
    another default.
    """
    defaults = older.defaults
    if older.number is not None or not defaults:
        yield older, files
        return
    by_lack: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        present = names_in(store, file)
        name_of = older.schema.stored_name
        lacking = tuple(name for name in defaults if name_of(name) not in present)
        by_lack.setdefault(lacking, []).append(file)
    for lacking, alike in by_lack.items():
        constants = {name: defaults[name] for name in lacking}
        yield replace(older, reading=Reading(constants=constants)), alike


def names_in(store: Store, file: DataFile) -> frozenset[str]:
    """Return the columns that a file of Parquet holds. Reads its footer."""
    with store.open_input(file.key) as source:
        return frozenset(pq.read_schema(source).names)


def types_in(layout: Layout, older: OlderFiles) -> dict[str, Type]:
    """Return the columns of files by their names there, and the types to read them as.

    Arrow promotes plain ones.
    """
    reading, name_of = older.reading, older.schema.stored_name
    return {
        name_of(name): reading.rebuilt.get(name, kind)
        for name, kind in layout.column_types.items()
        if name not in reading.constants
    }


def dataset_of(
    store: Store, name: str, files: Sequence[DataFile], types: Mapping[str, Type]
) -> ds.FileSystemDataset:
    """Return files that are read in the same way as Arrow's dataset.

    Pages are compared with their checksums. The partition values of a file are attached to its
    fragment: Arrow makes columns of them, and skips the file where a filter excludes it.

    Args:
        store: Store that holds the files.
        name: Name of the dataset, for errors.
        files: Files, all of one group.
        types: Types of the columns to read.
    """
    arrow_types = {name: type_to_arrow(kind) for name, kind in types.items()}
    by_key = {file.key: file for file in files}
    is_compared = any(file.recorded is not None for file in files)
    if not is_compared:
        verify_files(store, name, by_key)
    filesystem = filesystem_for(
        store, (lambda key: open_intact(store, name, by_key[key])) if is_compared else None
    )
    return assembled(name, [(file, file.partition) for file in files], arrow_types, filesystem)


def assembled(
    name: str,
    files: Sequence[tuple[DataFile, Mapping[str, Scalar]]],
    types: Mapping[str, pa.DataType],
    filesystem: fs.FileSystem,
) -> ds.FileSystemDataset:
    """Return Arrow's dataset of files, with the values that all rows of each have.

    Args:
        name: Name of the dataset, for errors.
        files: Files, with the values of columns that all their rows have; these override a column
            of the same name in the file.
        types: Types of the columns.
        filesystem: File system whose paths are the files' keys.
    """
    # Imported here: where pandas is installed, this loads all of it, which takes a third of a
    # second. Only reads of Parquet should pay for that.
    import pyarrow.dataset as ds

    format_ = scanned_format()
    fragments = []
    terms: dict[tuple[str, Scalar], pc.Expression] = {}
    for file, known in files:
        fragment = format_.make_fragment(
            file.key, filesystem=filesystem, partition_expression=_constants(known, types, terms)
        )
        if file.share is not None:
            with translating(name, lambda key=file.key: key):  # type: ignore[misc]  # mypy#12557
                fragment = _part_of(fragment, file.share)
        if fragment is not None:
            fragments.append(fragment)
    return ds.FileSystemDataset(fragments, pa.schema(list(types.items())), format_, filesystem)


def scanned_format() -> ds.ParquetFileFormat:
    """Return how Arrow scans Parquet: as `open_parquet`."""
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            page_checksum_verification=True
        ),
    )


def _part_of(fragment: ds.ParquetFileFragment, share: Share) -> ds.ParquetFileFragment | None:
    """Return the row groups of a file that belong to a part of it; None if there are none."""
    fragment.ensure_complete_metadata()
    mine = share.row_groups([group.num_rows for group in fragment.row_groups])
    return fragment.subset(row_group_ids=mine) if mine else None


def _constants(
    values: Mapping[str, Scalar],
    types: Mapping[str, pa.DataType],
    terms: dict[tuple[str, Scalar], pc.Expression],
) -> pc.Expression | None:
    """Return an expression for the values that all rows of a file have; Arrow prunes by it.

    Args:
        values: The values by column.
        types: Types of the columns.
        terms: Expressions of other files, by column and value; receives new ones.
    """
    parts = []
    for name, value in values.items():
        # Other values may be equal without being the same, such as 0.0 and -0.0.
        is_plain = isinstance(value, str | int)
        term = terms.get((name, value)) if is_plain else None
        if term is None:
            field = pc.field(name)
            term = (
                field.is_null()
                if value is None
                else field == pc.scalar(pa.scalar(value, types[name]))
            )
            if is_plain:
                terms[name, value] = term
        parts.append(term)
    return join(operator.and_, parts) if parts else None


class _StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow's classes are untyped
    """Read access for the scanner: opens files and returns their sizes. Nothing is listed."""

    def __init__(self, store: Store, open_input: OpenInput) -> None:
        self._store = store
        self._open_input = open_input

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _StoreHandler)
            and other._store.uri == self._store.uri
            and other._open_input == self._open_input
        )

    def __hash__(self) -> int:
        return hash(self._store.uri)

    def get_type_name(self) -> str:
        return "lakebed"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        READS.check()
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return fs.FileInfo(path, type=fs.FileType.File, size=self._store.size(path))
        except ObjectNotFoundError:
            return fs.FileInfo(path, type=fs.FileType.NotFound)

    def open_input_file(self, path: str) -> pa.NativeFile:
        READS.check()
        return self._open_input(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        raise self._refused(str(selector.base_dir))

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: ARG002, FBT001 - pyarrow's signature
        raise self._refused(path)

    def delete_dir(self, path: str) -> None:
        raise self._refused(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - pyarrow's signature
        raise self._refused(path)

    def delete_root_dir_contents(self) -> None:
        raise self._refused("/")

    def delete_file(self, path: str) -> None:
        raise self._refused(path)

    def move(self, src: str, dest: str) -> None:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(src)

    def copy_file(self, src: str, dest: str) -> None:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(src)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(path)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(path)

    def _refused(self, path: str) -> ReadOnlyError:
        return ReadOnlyError(
            f"The scanner asked to list or change {path!r}.", hint="It reads planned files only."
        )


def filesystem_for(store: Store, open_input: OpenInput | None = None) -> fs.FileSystem:
    """Return a read-only file system whose paths are the store's keys.

    Args:
        store: Store that holds the files.
        open_input: Opens the file of a key; None for Arrow's own way to files on this machine,
            whose footers are verified before, and elsewhere for files with verified footers.
    """
    root = store.local_path("x")
    if root is not None and open_input is None:
        return fs.SubTreeFileSystem(str(root.parent), fs.LocalFileSystem())
    return fs.PyFileSystem(_StoreHandler(store, open_input or _verifying(store)))


def _verifying(store: Store) -> OpenInput:
    """Return a function that opens files, and verifies the footer of each once.

    Arrow opens a file for its footer, and again for its pages.
    """
    verified: set[str] = set()

    def open_input(key: str) -> pa.NativeFile:
        if key in verified:
            return store.open_input(key)
        source = open_verified(store, key)
        verified.add(key)
        return source

    return open_input


def verify_files(store: Store, name: str, keys: Iterable[str]) -> None:
    """Verify the footers of files on this machine, which Arrow opens by itself.

    Raises:
        DamagedFileError: A footer differs from its checksum.
    """
    if store.local_path("x") is not None:
        verify_footers(store, name, keys)

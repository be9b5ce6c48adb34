"""Reading a plan with Spark: natively where its files allow it, else through Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Literal, get_args

from lakebed.arrow.older import OlderFiles
from lakebed.arrow.scan import output_schema, scan
from lakebed.errors import InvalidInputError
from lakebed.model.lineage import simplify
from lakebed.model.predicate import TRUE, formulas_of
from lakebed.model.values import UTC_NAMES
from lakebed.plan.plan import DataFile, Scan
from lakebed.spark.connector import find_unreachable
from lakebed.spark.file_lists import NativeWay
from lakebed.spark.native_read import (
    ChooseFiles,
    find_obstacle,
    find_odd,
    needed_columns,
    read_natively,
    struct_of,
)
from lakebed.spark.session import is_classic, is_spark
from lakebed.spark.sized_tasks import hinted
from lakebed.spark.through_arrow import read_through_arrow, size_of, to_spark_types
from lakebed.spark.types import commented
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Way = Literal["auto", "native", "paths", "prepared", "arrow"]

# On Connect, Spark looks at each path again in each action: for so many small files, this may take
# longer than its own reader saves. An estimate; bench/reading.py measures only classic sessions.
_MANY_FILES = 2_000
_FEW_FAR_FILES = 32  # on an object store; more need a Spark job in each action
_LARGE_FILE_BYTES = 2**20


def read_frame(
    spark: SparkSession,
    store: Store,
    plan: Scan,
    columns: Sequence[str] | None = None,
    *,
    way: Way = "auto",
    choose: ChooseFiles | None = None,
) -> DataFrame:
    """Return the rows of a plan as a DataFrame.

    `native` is Spark's own Parquet reader on the planned files. It receives them as `paths`, or as
    a `prepared` list; `native` uses the faster of the two. `arrow` reads the files with Arrow
    inside `mapInArrow`: it supports storage that the session does not reach by a connector of
    Hadoop, files of other tools, and partition values that Spark garbles. `auto` uses `native`
    where its answer is right and it is not slower. Files of older schemas are read separately where
    they differ, and united under the current schema.

    Args:
        spark: Session of the frame.
        store: The store that holds the files.
        plan: Plan of the read.
        columns: Fields or partition fields, `batch_id` among them; None for all fields.
        way: Way of reading; None to choose it.
        choose: Chooses the files that a query needs, while Spark plans it. Used if Spark itself
            reads the files, in a classic session.

    Raises:
        SchemaMismatchError: A column is unknown or named twice, or there is none.
        InvalidInputError: The way is unknown, or would give a wrong answer here.
        CorruptMetadataError: A planned file is missing; only `prepared` detects this here.

    Cost:
        No Spark job yet. `paths` stats each planned file once on Spark's driver, `prepared` in this
        process: on an object store by a LIST for 1,000 files that are next to each other.
    """
    if way not in get_args(Way):
        raise InvalidInputError(
            f"way is {way!r}.", hint=f"Give one of {', '.join(get_args(Way))}, or none."
        )
    wanted = output_schema(plan.layout, columns)
    schema = struct_of(plan, wanted.names)
    if not store.is_shared:
        rows = to_spark_types(scan(store, plan, columns).read_all())
        return spark.createDataFrame(rows, schema)
    if not plan.files:
        return spark.createDataFrame([], schema)
    if way != "arrow" and _is_native(spark, store, plan, wanted.names, is_named=way != "auto"):
        return commented(_read_mixed(spark, store, plan, wanted.names, way, choose), schema)
    return read_through_arrow(spark, store, plan, wanted.names, schema)


def _is_native(
    spark: SparkSession, store: Store, plan: Scan, names: Sequence[str], *, is_named: bool
) -> bool:
    """Return whether Spark's own reader gives the right answer, and is not slower.

    Raises:
        InvalidInputError: The caller asked for it by name, and its answer would be wrong.
    """
    obstacle = (
        find_obstacle(store, plan, names)
        or _find_other_engine(spark)
        or _find_other_meaning(spark, plan)
        or find_unreachable(spark, store, plan.files[0].key, retry=is_named)
    )
    if obstacle and is_named:
        raise InvalidInputError(
            f"Cannot read {plan.layout.name!r} natively: {obstacle}.", hint="Leave 'way' out."
        )
    return not obstacle and (is_named or not _is_slow_by_path(spark, store, plan))


def _find_other_engine(spark: SparkSession) -> str:
    """Return why the engine of a session cannot read the files as Spark does; empty if it can.

    Sail returns null for each partition field in a path.
    """
    return (
        "" if is_spark(spark) else "the engine of the session is not Spark, whose reader it needs"
    )


def _find_other_meaning(spark: SparkSession, plan: Scan) -> str:
    """Return why a session would read the condition in another way; empty if it would not."""
    if plan.residual is None or not formulas_of(plan.residual):
        return ""
    zone = str(spark.conf.get("spark.sql.session.timeZone", ""))
    if zone in UTC_NAMES and str(spark.conf.get("spark.sql.ansi.enabled", "")).lower() == "true":
        return ""
    return "the condition is computed in UTC and by ANSI rules, which those of the session are not"


def _is_slow_by_path(spark: SparkSession, store: Store, plan: Scan) -> bool:
    """Return whether Spark would look at many small files, one by one."""
    if is_classic(spark) or len(plan.files) <= _FEW_FAR_FILES:
        return False
    if store.local_path(plan.files[0].key) is None:
        return True
    if len(plan.files) <= _MANY_FILES:
        return False
    # The sizes of some files are known; a stat of each file would cost what is to be saved.
    sample = plan.files[:: len(plan.files) // 100]
    paths = [store.local_path(file.key) for file in sample]
    sizes = [path.stat().st_size for path in paths if path is not None and path.exists()]
    return sum(sizes) < _LARGE_FILE_BYTES * len(sample)


def _read_mixed(
    spark: SparkSession,
    store: Store,
    plan: Scan,
    names: Sequence[str],
    way: Way,
    choose: ChooseFiles | None,
) -> DataFrame:
    """Read files natively where Spark can, kind by kind, and the others through Arrow."""
    odd = {file.label: reason for file in plan.files if (reason := find_odd(file))}
    usual = replace(plan, files=tuple(file for file in plan.files if file.label not in odd))
    through_arrow = [file for file in plan.files if file.label in odd]
    parts = _by_schema(usual, names)
    for older, part in parts:
        if older.reading.rebuilt:
            name = next(iter(older.reading.rebuilt))
            reason = f"field {name!r} has another form in files of schema {older.number}"
            odd |= dict.fromkeys((file.label for file in part.files), reason)
            through_arrow += part.files
    if odd and way != "auto":
        raise InvalidInputError(
            f"Cannot read {plan.layout.name!r} natively: {next(iter(odd.values()))}.",
            hint="Leave 'way' out.",
        )
    native_way = _native_way(way)
    frames = [
        read_natively(spark, store, part, names, older, native_way, choose)
        for older, part in parts
        if not older.reading.rebuilt
    ]
    if through_arrow:
        arrow_part = replace(plan, files=tuple(through_arrow))
        frames.append(read_through_arrow(spark, store, arrow_part, names, struct_of(plan, names)))
    union = reduce(lambda one, other: one.union(other), frames)
    if not through_arrow or len(frames) == 1:
        return union
    return hinted(union, size_of(store, plan))


def _native_way(way: Way) -> NativeWay | None:
    """Return the way in which Spark receives the files; None if it is not given."""
    return way if way in ("paths", "prepared") else None


def _by_schema(plan: Scan, names: Sequence[str]) -> list[tuple[OlderFiles, Scan]]:
    """Split a plan into groups of files that are read alike, judged by some columns."""
    needed = needed_columns(plan, names)
    by_number: dict[int | None, OlderFiles] = {}
    groups: list[tuple[OlderFiles, list[DataFile]]] = []
    for file in plan.files:
        number = file.schema_number
        if number not in by_number:
            by_number[number] = OlderFiles.of(plan.layout, number).for_columns(needed)
        older = by_number[number]
        alike = next((files for known, files in groups if known.reads_as(older)), None)
        if alike is None:
            groups.append((older, alike := []))
        alike.append(file)
    parts = []
    for older, files in groups:
        residual = plan.residual
        if residual is not None:
            residual = simplify(residual, older.reading.constants)
        residual = None if residual == TRUE else residual
        parts.append((older, replace(plan, files=tuple(files), residual=residual)))
    return parts


__all__ = ["Way", "read_frame"]

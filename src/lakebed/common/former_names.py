"""Other names of calls: aliases of other libraries, and former names, which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from lakebed.errors import RenamedError

ALIASES: Mapping[str, str] = {
    "filter": "where",
    "to_arrow": "arrow",
    "to_pandas": "pandas",
    "to_polars": "polars",
}
"""Spellings of the libraries around, which work. They are not listed by `dir`."""
_OF_VIEW = {
    "covering_partitions": "kite.covering_partitions",
    "export_telemetry": "Repository.trees.export",
    "find_overwrite": "overwrite(dry_run=True)",
    "from_": "kite.from_",
    "from_after": "kite.from_after",
    "includes": "kite.includes",
    "is_aligned": "kite.is_aligned",
    "is_empty": "kite.is_empty",
    "is_of": "kite.is_of",
    "is_ready": "kite.is_ready",
    "reader": "kite.reader",
    "ready_at": "kite.ready_at",
    "signal_ready": "kite.signal_ready",
    "to": "kite.to",
    "to_before": "kite.to_before",
    "view_uri": "kite.uri",
    "with_": "kite.with_",
    "writer": "kite.writer",
}
_OF_DATASET = {
    "build_index": "indices.build",
    "compact_metadata": "compact(metadata=True)",
    "dataset_uri": "kite.uri",
    "drop_index": "indices.drop",
    "find_rollback": "rollback(dry_run=True)",
    "hold": "sources.hold",
    "holds": "sources.holds",
    "open_staged": "staged.open",
    "partitions": "inspect.partitions",
    "plot": "inspect.plot",
    "promote": "dimensions.promote",
    "protect": "protections.add",
    "publications": "inspect.publications",
    "publish_delta": 'publish("delta")',
    "publish_iceberg": 'publish("iceberg")',
    "publish_statements": 'publish("hive", print_sql=True)',
    "release": "sources.release",
    "republish": "publish",
    "schemas": "inspect.schemas",
    "stage": "staged.add",
    "unprotect": "protections.remove",
    "unpublish_delta": 'unpublish("delta")',
    "unpublish_iceberg": 'unpublish("iceberg")',
    "update": "evolve",
}
_OF_REPOSITORY = {
    "find_adoption": "adopt(dry_run=True)",
    "follow_metadata": "trees.follow_metadata",
}

FORMER_NAMES: Mapping[str, Mapping[str, str]] = {
    "View": _OF_VIEW,
    "Dataset": _OF_DATASET,
    "Repository": _OF_REPOSITORY,
}
"""By class: each former name, and what to write in its place."""

FORMER_CALLS: Mapping[str, str] = {
    "indices": "indices.list",
    "protections": "protections.list",
    "sources": "sources.list",
    "staged": "staged.list",
}
"""Former methods of a dataset that are groups of calls now: each, and what to call in its place."""


# Words of Delta and Iceberg for calls that Lakebed has under another name.
_WORDS_OF_OTHERS: Mapping[str, Mapping[str, str]] = {
    "Dataset": {
        "vacuum": "cleanup",
        "expire_snapshots": "cleanup",
        "remove_orphan_files": "cleanup",
        "optimize": "compact",
        "rewrite_data_files": "compact",
        "restore": "rollback",
        "detail": "inspect",
    },
    "Readable": {"toPandas": "pandas", "to_df": "pandas", "toDF": "spark", "show": "head"},
    "Repository": {"read": "open", "table": "open", "load_table": "open", "tables": "list"},
}


class RefusesFormerNames:
    """Base class of what has other names: an alias works, a former name raises an error."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker shall still find unknown names

        def __getattr__(self, name: str) -> object:
            """Return what an alias stands for, or raise an error that names the new spelling.

            Raises:
                RenamedError: The attribute has another name now.
                AttributeError: There is no such attribute, and there was none.
            """
            own = type(self)
            if hasattr(own, ALIASES.get(name, "")):
                return getattr(self, ALIASES[name])
            for base in own.__mro__:
                new = FORMER_NAMES.get(base.__name__, {}).get(name)
                if new is not None:
                    is_of_another = new.startswith("Repository.")
                    spelling = new if is_of_another else f"{own.__name__}.{new}"
                    raise _renamed(f"{own.__name__}.{name}", spelling)
            for base in own.__mro__:
                known = _WORDS_OF_OTHERS.get(base.__name__, {}).get(name)
                if known is not None:
                    raise RenamedError(
                        f"{own.__name__} has no {name!r}.",
                        hint=f"Lakebed's word for it is `{known}`.",
                    )
            message = f"{own.__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)


def refuse_former_call(owner: str, name: str) -> NoReturn:
    """Raise the error for a method that is a group of calls now.

    Raises:
        RenamedError: Always.
    """
    raise _renamed(f"{owner}.{name}()", f"{owner}.{FORMER_CALLS[name]}()")


def _renamed(old: str, new: str) -> RenamedError:
    return RenamedError(f"{old} is now {new}.", hint="Lakebed has one spelling for each call.")

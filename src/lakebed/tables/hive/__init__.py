"""Hive tables: publish a dataset to a metastore, and adopt tables of a metastore."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.tables.hive import from_hive as from_hive
    from lakebed.tables.hive import shown_directories as shown_directories
    from lakebed.tables.hive import statements as statements
    from lakebed.tables.hive import to_hive as to_hive
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "to_hive": "lakebed.tables.hive",
            "from_hive": "lakebed.tables.hive",
            "shown_directories": "lakebed.tables.hive",
            "statements": "lakebed.tables.hive",
        },
    )

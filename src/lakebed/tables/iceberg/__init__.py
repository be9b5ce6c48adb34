"""Iceberg tables: Iceberg metadata over the data files of a dataset."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.tables.iceberg import catalog_plans as catalog_plans
    from lakebed.tables.iceberg import catalog_tables as catalog_tables
    from lakebed.tables.iceberg import dead_metadata as dead_metadata
    from lakebed.tables.iceberg import from_iceberg as from_iceberg
    from lakebed.tables.iceberg import to_iceberg as to_iceberg
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "catalog_plans": "lakebed.tables.iceberg",
            "catalog_tables": "lakebed.tables.iceberg",
            "dead_metadata": "lakebed.tables.iceberg",
            "from_iceberg": "lakebed.tables.iceberg",
            "to_iceberg": "lakebed.tables.iceberg",
        },
    )

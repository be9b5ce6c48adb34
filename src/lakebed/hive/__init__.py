"""Hive: publish a dataset to a metastore, and adopt tables that are there."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.hive import adoption as adoption
    from lakebed.hive import publication as publication
    from lakebed.hive import shown as shown
    from lakebed.hive import statements as statements
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "adoption": "lakebed.hive",
            "publication": "lakebed.hive",
            "shown": "lakebed.hive",
            "statements": "lakebed.hive",
        },
    )

"""Iceberg: metadata over the data files of a dataset, by which they are an Iceberg table."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.iceberg import dead_metadata as dead_metadata
    from lakebed.iceberg import foreign as foreign
    from lakebed.iceberg import publication as publication
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "dead_metadata": "lakebed.iceberg",
            "foreign": "lakebed.iceberg",
            "publication": "lakebed.iceberg",
        },
    )

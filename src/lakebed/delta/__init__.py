"""Delta: a log over the data files of a dataset, by which they are a Delta table."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.delta import foreign as foreign
    from lakebed.delta import publication as publication
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "foreign": "lakebed.delta",
            "publication": "lakebed.delta",
        },
    )

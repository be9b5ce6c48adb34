"""Writing work: write, rewrite, delete, merge, ingest, stage, roll back, clean up, check.

Each module is loaded on first use.
"""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.work import adoption as adoption
    from lakebed.work import check as check
    from lakebed.work import cleanup as cleanup
    from lakebed.work import compaction as compaction
    from lakebed.work import deletion as deletion
    from lakebed.work import epochs as epochs
    from lakebed.work import erasure as erasure
    from lakebed.work import indexing as indexing
    from lakebed.work import metadata_compaction as metadata_compaction
    from lakebed.work import overwriting as overwriting
    from lakebed.work import owned as owned
    from lakebed.work import promotion as promotion
    from lakebed.work import protection as protection
    from lakebed.work import rerouting as rerouting
    from lakebed.work import rollback as rollback
    from lakebed.work import staging as staging
    from lakebed.work import writer as writer
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "adoption": "lakebed.work",
            "check": "lakebed.work",
            "cleanup": "lakebed.work",
            "compaction": "lakebed.work",
            "deletion": "lakebed.work",
            "epochs": "lakebed.work",
            "erasure": "lakebed.work",
            "indexing": "lakebed.work",
            "metadata_compaction": "lakebed.work",
            "overwriting": "lakebed.work",
            "owned": "lakebed.work",
            "promotion": "lakebed.work",
            "protection": "lakebed.work",
            "rerouting": "lakebed.work",
            "rollback": "lakebed.work",
            "staging": "lakebed.work",
            "writer": "lakebed.work",
        },
    )

"""Hive: publish a dataset to a metastore, and adopt tables that are there."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.hive import adoption, publication, shown
else:
    __getattr__, __dir__ = lazily(__name__, {}, modules=("adoption", "publication", "shown"))

__all__ = ["adoption", "publication", "shown"]

"""Iceberg: metadata over the data files of a dataset, by which they are an Iceberg table."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.iceberg import leftovers, publication
else:
    __getattr__, __dir__ = lazily(__name__, {}, modules=("leftovers", "publication"))

__all__ = ["leftovers", "publication"]

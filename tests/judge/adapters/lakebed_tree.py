"""Lakebed, with a tree as the head, which folds every few commits."""

from __future__ import annotations

from typing import Any

from heads import SMALL_SIZES

from judge.adapters import lakebed as of_documents
from lakebed.state.tree.tree_commit import SIZES


class Table(of_documents.Table):
    """A dataset on S3."""

    head = "tree"

    def __init__(self, given: dict[str, Any]) -> None:
        for name, size in SMALL_SIZES.items():
            object.__setattr__(SIZES, name, size)
        super().__init__(given)

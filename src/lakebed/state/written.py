"""What a writer has written: data files, and all that a commit is to note of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.index.postings_writer import Postings, joined_postings, keys_of_postings
from lakebed.model.keys import partition_of_label
from lakebed.model.schema import Schema
from lakebed.state.caught import Caught, total
from lakebed.state.facts import facts_schema
from lakebed.state.reservation import ManifestFile
from lakebed.state.sources import Origins


class SupportsKey(Protocol):
    """What knows where data files are."""

    def key(self, label: str) -> str:
        """Return the key of a data file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a writer has written, or several. Travels from Spark tasks.

    Attributes:
        facts: Of the data files; see `lakebed.state.facts`.
        postings: Segments of the indices, by column.
        caught: What the caps of dimensions sent to `OTHER`.
        origins: By label of a file: of which raw files its rows are, where that is known.
        carried: By label of a file whose rows were there before: the run that wrote them, where
            it has a name. No file holds rows of several runs.
    """

    facts: pa.Table
    postings: Postings = field(default_factory=dict)
    caught: tuple[Caught, ...] = ()
    origins: Mapping[str, Origins] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def nothing(cls, stored: Schema) -> Self:
        """Return what there is without files of `stored` fields."""
        return cls(facts=facts_schema(stored).empty_table())

    def __add__(self, other: Written) -> Written:
        """Return what both have written."""
        return joined([self, other])

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the data files."""
        return tuple(self.facts.column("label").to_pylist())

    @property
    def manifest(self) -> tuple[ManifestFile, ...]:
        """The data files as the manifest of a batch lists them."""
        names = ("label", "row_count", "size_bytes", "checksum")
        columns = (self.facts.column(name).to_pylist() for name in names)
        return tuple(ManifestFile(*row) for row in zip(*columns, strict=True))

    @property
    def partitions(self) -> frozenset[str]:
        """Paths of the partitions that the files lie in."""
        return frozenset(partition_of_label(label) for label in self.labels)

    @property
    def row_count(self) -> int:
        """Rows of all files."""
        return pc.sum(self.facts.column("row_count")).as_py() or 0

    def keys(self, names: SupportsKey) -> tuple[str, ...]:
        """Return the keys of all objects that were written."""
        return (*map(names.key, self.labels), *keys_of_postings(self.postings))

    def without(self, labels: frozenset[str]) -> Written:
        """Return the same without some of the files; their postings stay."""
        is_gone = pc.is_in(self.facts.column("label"), pa.array(sorted(labels), pa.string()))
        return replace(
            self,
            facts=self.facts.filter(pc.invert(is_gone)),
            origins={
                label: origins for label, origins in self.origins.items() if label not in labels
            },
            carried={label: run for label, run in self.carried.items() if label not in labels},
        )


def joined(parts: Sequence[Written]) -> Written:
    """Return what several writers have written as one.

    Args:
        parts: At least one.
    """
    return Written(
        facts=pa.concat_tables([part.facts for part in parts]),
        postings=joined_postings([part.postings for part in parts]),
        caught=total(caught for part in parts for caught in part.caught),
        origins={label: origins for part in parts for label, origins in part.origins.items()},
        carried={label: run for part in parts for label, run in part.carried.items()},
    )

"""The result of a writer: data files, and all that a commit records about them."""

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
from lakebed.state.check_results import CheckOutcome, total_of_checks
from lakebed.state.facts import facts_schema
from lakebed.state.reservation import ManifestFile
from lakebed.state.sources import Origins


class SupportsKey(Protocol):
    """An object that knows the keys of data files."""

    def key(self, label: str) -> str:
        """Return the key of a data file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of one or several writers. Travels from Spark tasks.

    Attributes:
        facts: Facts of the data files; see `lakebed.state.facts`.
        postings: Segments of the indices, by column.
        caught: Values that the caps of dimensions sent to `OTHER`.
        origins: The raw files of the rows of a data file, by its label, where known.
        carried: The named run that wrote the rows of a rewritten file, by its label. No file holds
            rows of several runs.
        checks: Results of the declared checks of rows.
        set_aside: Keys of temporary files with rows for the quarantine.
        zones: Time zones, other than UTC, of the times that partition functions divide.
    """

    facts: pa.Table
    postings: Postings = field(default_factory=dict)
    caught: tuple[Caught, ...] = ()
    origins: Mapping[str, Origins] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[CheckOutcome, ...] = ()
    set_aside: tuple[str, ...] = ()
    zones: frozenset[str] = frozenset()

    @classmethod
    def nothing(cls, stored: Schema) -> Self:
        """Return an empty result for files of `stored` fields."""
        return cls(facts=facts_schema(stored).empty_table())

    def __add__(self, other: Written) -> Written:
        """Return the result of both writers."""
        return joined([self, other])

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the data files."""
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
        """Number of rows in all files."""
        return pc.sum(self.facts.column("row_count")).as_py() or 0

    @property
    def has_failures(self) -> bool:
        """True if rows failed a declared check, so that their number is to be committed."""
        return any(result.count for result in self.checks)

    def keys(self, names: SupportsKey) -> tuple[str, ...]:
        """Return the keys of all objects that were written."""
        postings = keys_of_postings(self.postings)
        return (*map(names.key, self.labels), *postings, *self.set_aside)

    def without(self, labels: frozenset[str]) -> Written:
        """Return the same without some of the files; their postings stay."""
        is_removed = pc.is_in(self.facts.column("label"), pa.array(sorted(labels), pa.string()))
        return replace(
            self,
            facts=self.facts.filter(pc.invert(is_removed)),
            origins={
                label: origins for label, origins in self.origins.items() if label not in labels
            },
            carried={label: run for label, run in self.carried.items() if label not in labels},
        )


def joined(parts: Sequence[Written]) -> Written:
    """Return the results of several writers as one.

    Args:
        parts: The results; at least one.
    """
    results = [result for part in parts for result in part.checks]
    return Written(
        facts=pa.concat_tables([part.facts for part in parts]),
        postings=joined_postings([part.postings for part in parts]),
        caught=total(caught for part in parts for caught in part.caught),
        origins={label: origins for part in parts for label, origins in part.origins.items()},
        carried={label: run for part in parts for label, run in part.carried.items()},
        checks=total_of_checks(results) if results else (),
        set_aside=tuple(key for part in parts for key in part.set_aside),
        zones=frozenset(zone for part in parts for zone in part.zones),
    )

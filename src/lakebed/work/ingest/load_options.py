"""How raw files are read, and what of them is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import get_args

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.files import CsvOptions, FileFormat
from lakebed.arrow.reading.sift import Counts
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError
from lakebed.model.values import Scalar
from lakebed.state.committing import CommitOptions

# Unless another limit is given: of few lines, a share says little.
_MAX_SHARE, _MAX_SHARE_OF_FEW, _FEW = 0.1, 0.5, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRules:
    """What of a raw file is taken.

    Attributes:
        max_rejects: How much of a file may be unfit: up to 1 a share of its lines, from 2 on a
            number of lines. None for a tenth, or half where ten lines or fewer are unfit.
        allow_truncated: Whether what can be read of a file is taken where its end is missing or
            damaged.
        unknown: What becomes of a field that the dataset lacks; see `Unknown`.

    >>> IngestRules(max_rejects=0.5).is_too_much(Counts(100, 101))
    True
    """

    max_rejects: float | None = None
    allow_truncated: bool = False
    unknown: Unknown = "reject"

    def __post_init__(self) -> None:
        limit = self.max_rejects
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (
            is_number and (0 <= limit <= 1 or (limit >= 2 and limit % 1 == 0))
        ):
            raise InvalidInputError(
                f"max_rejects is {limit!r}.",
                hint="Give a share of the lines from 0 to 1, or a whole number of lines from 2 on.",
            )
        _check_unknown(self.unknown)

    def is_too_much(self, became: Counts) -> bool:
        """Whether more of a file is unfit than may be."""
        limit = self.max_rejects
        if limit is None:
            limit = _MAX_SHARE if became.rejected_count > _FEW else _MAX_SHARE_OF_FEW
        if limit > 1:
            return became.rejected_count > limit
        return became.rejected_share > limit

    @property
    def takes_all(self) -> bool:
        """Whether a file may replace rows by none."""
        return self.max_rejects is not None and math.isclose(self.max_rejects, 1)


def _check_unknown(unknown: Unknown) -> None:
    known = get_args(Unknown)
    if unknown not in known:
        raise InvalidInputError(
            f"unknown is {unknown!r}.",
            hint=f"Give {', '.join(map(repr, known[:-1]))} or {known[-1]!r}.",
        )


def rule_of(format: FileFormat, csv: CsvOptions, rules: IngestRules) -> str:  # noqa: A002 - the word of the option
    """Return by which rule a file is read, as text: by another one it may be taken."""
    return " ".join(map(str, (format, *astuple(csv), *astuple(rules))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How raw files are read.

    Attributes:
        csv: How CSV is written.
        storage_options: What the store of a URL needs to know; no display shows what may be secret.
        write: Sizes and layout of data files; None for the options of the dataset.
        commit: Retries and lease of the commits; None for the options of the dataset.
        provided: Values of `provided` partition fields, the same for all rows.
        fail_on_rejects: Whether to commit nothing, neither rows nor quarantine, if something does
            not fit.
        max_rejects: How much of a file may be unfit, as of `Ingest.max_rejects`; where it is more,
            nothing is committed. 1 takes what fits of any file.
        allow_truncated: Whether what can be read of a file is taken where its end is missing or
            damaged; else nothing is committed.
        unknown: What becomes of a field that the dataset lacks: `reject` it, `ignore` it, which
            leaves it out of the rows, or `keep` it, which adds it to the schema, nullable.

    >>> LoadOptions(csv=CsvOptions(delimiter=";")).storage_options
    {}
    """

    csv: CsvOptions = field(default_factory=CsvOptions)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions | None = None
    commit: CommitOptions | None = None
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    fail_on_rejects: bool = False
    max_rejects: float | None = 1
    allow_truncated: bool = True
    unknown: Unknown = "reject"

    @property
    def rules(self) -> IngestRules:
        """What of a file is taken."""
        return IngestRules(
            max_rejects=self.max_rejects,
            allow_truncated=self.allow_truncated,
            unknown=self.unknown,
        )

    def __post_init__(self) -> None:
        _ = self.rules  # which checks them
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))

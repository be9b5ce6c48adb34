"""Options for reading raw files, and rules for accepting their rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import get_args

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FileFormat
from lakebed.arrow.reading.sift import Counts
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError
from lakebed.model.values import Scalar
from lakebed.state.committing import CommitOptions

# Default limits. Values that do not fit their fields are seldom single accidents: the schema is wrong.
_MAX_SHARE, _MAX_MISMATCH_SHARE = 0.1, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRules:
    """Rules for accepting a raw file.

    Attributes:
        max_rejects: Limit of rejects of a file: up to 1 a share of its lines, from 2 on a number
            of lines. None for a tenth, and for a hundredth for values that do not fit their fields.
        allow_truncated: Whether to accept the readable part of a file whose end is missing or
            damaged.
        unknown: Treatment of a field that the dataset lacks; see `Unknown`.

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
        check_unknown(self.unknown)

    def is_too_much(self, became: Counts) -> bool:
        """Return whether a file has more rejects than the limit."""
        limit = self.max_rejects
        if limit is None:
            # The rest of a truncated file is judged by `allow_truncated`.
            unfit = replace(became, rejected_count=became.line_count, rest_count=0)
            return unfit.rejected_share > _MAX_SHARE or unfit.mismatch_share > _MAX_MISMATCH_SHARE
        if limit > 1:
            return became.rejected_count > limit
        return became.rejected_share > limit

    @property
    def takes_all(self) -> bool:
        """True if a file without any fitting row may replace rows."""
        return self.max_rejects is not None and math.isclose(self.max_rejects, 1)


def check_unknown(unknown: Unknown) -> None:
    """Check the rule for a field that the dataset lacks.

    Raises:
        InvalidInputError: There is no such rule.
    """
    known = get_args(Unknown)
    if unknown not in known:
        raise InvalidInputError(
            f"unknown is {unknown!r}.",
            hint=f"Give {', '.join(map(repr, known[:-1]))} or {known[-1]!r}.",
        )


def rule_of(
    format: FileFormat,  # noqa: A002 - the word of the option
    csv: CsvOptions,
    json: JsonOptions,
    rules: IngestRules,
    *,
    levels: bool,
) -> str:
    """Return the rules for reading a file, as text: with other rules it may be accepted."""
    notation = {"csv": astuple(csv), "json": astuple(json)}.get(format, ())
    return " ".join(map(str, (format, *notation, *astuple(rules), levels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Options for reading raw files.

    Attributes:
        csv: Notation of CSV files; None to find it by their first rows.
        json: Notation of JSON files; None to find it by their first rows.
        storage_options: Options of the store of a URL; displays hide possible secrets.
        write: Sizes and layout of data files; None for the options of the dataset.
        commit: Retry and lease settings of the commits; None for the options of the dataset.
        provided: Values of `provided` partition fields, the same for all rows.
        fail_on_rejects: Whether to commit nothing, neither rows nor quarantine, if there is any
            reject.
        max_rejects: Limit of rejects of a file, as in `Ingest.max_rejects`; if a file exceeds it,
            nothing is committed. 1 accepts the fitting rows of any file.
        allow_truncated: Whether to accept the readable part of a file whose end is missing or
            damaged; else nothing is committed.
        unknown: Treatment of a field that the dataset lacks: `reject` the line, `ignore` the field,
            which leaves it out of the rows, or `keep` it, which adds it to the schema, nullable.
        levels: Whether folders `name=value` hold values of the rows, or are plain folders.

    >>> LoadOptions(csv=CsvOptions(delimiter=";")).storage_options
    {}
    """

    csv: CsvOptions | None = None
    json: JsonOptions | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions | None = None
    commit: CommitOptions | None = None
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    fail_on_rejects: bool = False
    max_rejects: float | None = 1
    allow_truncated: bool = True
    unknown: Unknown = "reject"
    levels: bool = True

    @property
    def rules(self) -> IngestRules:
        """Rules for accepting a file."""
        return IngestRules(
            max_rejects=self.max_rejects,
            allow_truncated=self.allow_truncated,
            unknown=self.unknown,
        )

    @property
    def csv_options(self) -> CsvOptions:
        """The notation of CSV, or the default."""
        return self.csv or CsvOptions()

    @property
    def json_options(self) -> JsonOptions:
        """The notation of JSON, or the default."""
        return self.json or JsonOptions()

    def __post_init__(self) -> None:
        _ = self.rules  # checks the values
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))

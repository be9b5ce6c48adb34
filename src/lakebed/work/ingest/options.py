"""How raw files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.files import CsvOptions
from lakebed.model.redaction import StorageOptions
from lakebed.model.values import Scalar
from lakebed.state.commit import CommitOptions

MAX_REJECTS = 0.5  # damage spoils nearly all of a file or nearly nothing of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How raw files are read.

    Attributes:
        csv: How CSV is written.
        storage_options: What the store of a URL needs to know; no display shows what may be secret.
        write: How data files are cut.
        commit: How long the commits fight for the head.
        provided: Values of `provided` partition fields, the same for all rows.
        fail_on_rejects: Whether to commit nothing, neither rows nor quarantine, if something does
            not fit.

    >>> LoadOptions(csv=CsvOptions(delimiter=";")).storage_options
    {}
    """

    csv: CsvOptions = field(default_factory=CsvOptions)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions = field(default_factory=WriteOptions)
    commit: CommitOptions = field(default_factory=CommitOptions)
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    fail_on_rejects: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))

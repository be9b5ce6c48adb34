"""What is tried with each library that Lakebed shares a format with, in which direction.

The page `docs/interop.md` has this table; `make compat` prints it with what each row has shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of the table.

    Attributes:
        oracle: The library and its release.
        direction: Who writes and who reads.
        tried: What.
        tests: Patterns of the tests that show it, below `tests/`.
        differs: What differs; empty if nothing does.
    """

    oracle: str
    direction: str
    tried: str
    tests: tuple[str, ...]
    differs: str = ""

    def covers(self, test: str) -> bool:
        """Whether it is shown by a test, given by its path and name below `tests/`."""
        return any(fnmatch(test, f"{pattern}*") for pattern in self.tests)


PLATEAU, KARTOTHEK = "plateau 4.6.2", "kartothek 5.3.0"
DATALAKE, KITE = "datalake 2.5.11", "Kite's vectors"

TRIALS = (
    Trial(
        oracle=PLATEAU,
        direction="we write, it reads",
        tried="rows, columns and predicates of 28 datasets: all types, keys, compressions, both "
        "heads, older schemas, heads that moved",
        tests=(
            "interop/test_plateau_reads.py",
            "interop/test_plateau_evolution.py",
            "interop/test_plateau_handover.py",
            "interop/test_plateau_and_tables.py",
            "interop/test_published_to_kartothek.py",
        ),
        differs="a field that was dropped and added again shows its old values there; a renamed field "
        "has its first name",
    ),
    Trial(
        oracle=PLATEAU,
        direction="we write, it looks up",
        tried="index files after every kind of commit; what it dispatches is what we plan",
        tests=(
            "interop/test_plateau_indices.py::test_plateau*",
            "interop/test_plateau_indices.py::test_an_index*",
            "interop/test_plateau_indices.py::test_texts*",
        ),
        differs="no index of a column that holds null or NaN, nor of decimals, bytes, times, "
        "32-bit floats; it updates beside an index of texts only if that is of large_string",
    ),
    Trial(
        oracle=PLATEAU,
        direction="both write one dataset",
        tried="updates, deletions, metadata, garbage collection, in turns with our commits",
        tests=(
            "interop/test_plateau_updates.py",
            "interop/test_plateau_indices.py::test_what_plateau_adds*",
            "interop/test_plateau_indices.py::test_plans_go*",
        ),
        differs="its update is not conditional; its collection deletes older versions; a slash in a "
        "key that it writes is not encoded",
    ),
    Trial(
        oracle=PLATEAU,
        direction="it writes, we read",
        tried="6 golden datasets, both heads; plans by its indices keep what it dispatches",
        tests=(
            "golden/*plateau*",
            "interop/test_plateau_indices.py::test_plans_keep*",
            "interop/test_plateau_indices.py::test_what_plateau_calls*",
        ),
        differs="nulls behind an index are found here, and lost there",
    ),
    Trial(
        oracle=PLATEAU,
        direction="limits",
        tried="what it cannot do with a dataset of ours, so that a release that can is noticed",
        tests=("interop/test_plateau_limits.py",),
        differs="boolean and null keys, integers beside null, NaN, NOT IN, decimals, zones",
    ),
    Trial(
        oracle=KARTOTHEK,
        direction="we write, it reads",
        tried="rows, columns and predicates of the same 28 datasets",
        tests=(
            "interop/test_kartothek.py::test_kartothek_reads*",
            "interop/test_kartothek.py::test_kartothek_and_lakebed*",
        ),
        differs="it has no `not in`",
    ),
    Trial(
        oracle=KARTOTHEK,
        direction="we write, it looks up",
        tried="indices of texts and numbers after every kind of commit, and beside its updates",
        tests=(
            "interop/test_kartothek.py::test_kartothek_looks*",
            "interop/test_kartothek.py::test_kartothek_cannot*",
            "interop/test_kartothek.py::test_what_kartothek*",
        ),
        differs="it cannot read an index of large_string, plateau's own",
    ),
    Trial(
        oracle=KARTOTHEK,
        direction="it writes, we read",
        tried="6 golden datasets, several tables, both heads; plans keep what it dispatches",
        tests=(
            "golden/*kartothek-5.3.0*",
            "golden/test_handmade*",
            "interop/test_kartothek.py::test_each_table*",
            "interop/test_kartothek.py::test_plans*",
        ),
        differs="of several tables one is opened at a time",
    ),
    Trial(
        oracle=DATALAKE,
        direction="it pushes, we index",
        tried="S3 by its client and command line, notifications by SQS, uploads in parts",
        tests=(
            "interop/test_datalake_client.py::test_pushed*",
            "interop/test_datalake_client.py::test_upload*",
            "interop/test_datalake_client.py::test_command*",
        ),
    ),
    Trial(
        oracle=DATALAKE,
        direction="it asks our server",
        tried="list with all pages, latest, fetch, templates, tokens, every error",
        tests=(
            "interop/test_datalake_client.py::test_client*",
            "interop/test_datalake_client.py::test_content*",
            "interop/test_datalake_client.py::test_gzip*",
            "interop/test_datalake_client.py::test_latest*",
            "interop/test_datalake_client.py::test_missing*",
            "interop/test_datalake_client.py::test_token*",
            "interop/test_datalake_client.py::test_files_of*",
        ),
        differs="latest is the latest start, also of a file that began before another day's",
    ),
    Trial(
        oracle=DATALAKE,
        direction="we push, it reads",
        tried="files under <id>/data and under original keys; its records of the same files; times",
        tests=(
            "interop/test_datalake_client.py::test_file_that*",
            "interop/test_datalake_client.py::test_records*",
            "interop/test_datalake_client.py::test_times*",
        ),
        differs="a number in stored metadata is milliseconds here, also a small one",
    ),
    Trial(
        oracle=KITE,
        direction="its rules, our functions",
        tried="vectors of hashes, ranges, calendars, names, projections, alignment, URIs; numbered "
        "behaviours; defects that are not inherited",
        tests=("kite/",),
        differs="directories hold plain numbers and percent-encoded texts; projections are exact",
    ),
)


def trial_of(test: str) -> Trial | None:
    """Return the row that a test belongs to; None if to none."""
    return next((trial for trial in TRIALS if trial.covers(test)), None)


def table(results: dict[Trial, dict[str, int]]) -> str:
    """Return the rows with what they have shown, as aligned text."""
    rows = [("library", "direction", "tried", "passed", "failed", "skipped", "differs")]
    for trial in TRIALS:
        counts = results.get(trial, {})
        told = [str(counts.get(name, 0)) for name in ("passed", "failed", "skipped")]
        rows.append((trial.oracle, trial.direction, trial.tried, *told, trial.differs or "nothing"))
    narrow = [max(len(row[place]) for row in rows) for place in (0, 1, 3, 4, 5)]
    lines = []
    for oracle, direction, tried, *told, differs in rows:
        cells = (oracle, direction, *told)
        first = "  ".join(cell.ljust(width) for cell, width in zip(cells, narrow, strict=True))
        lines.append(f"{first}  {tried}; differs: {differs}")
    lines[0] = lines[0].replace("; differs: ", "; ")
    return "\n".join(lines)

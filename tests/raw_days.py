"""Days of raw files of several places, runs of the command line, and the rows that must come of them.

What is expected is counted here, from what was sent: nothing of Lakebed takes part in it.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click.testing
from table_doors import by_deltalake, by_pyiceberg

from lakebed.cli import main

Row = dict[str, Any]

PLACES = ("north", "south", "west")
FIRST_DAY = dt.date(2026, 1, 1)
ROWS_A_FILE = 12
_OUTAGE = {"LAKEBED_METASTORE": "thrift://127.0.0.1:1"}  # where no metastore is

_KEPT_BACK = frozenset({"unclear", "refused", "truncated", "rejects"})
_SAID = {
    "superseded": "superseded by others",
    "copy": "unchanged copies of files pushed before",
    "held": "Held: ",
    **dict.fromkeys(_KEPT_BACK, "Kept back: "),
}

_REQUIRED = {"day": {"type": "int", "logicalType": "date"}, "place": "string", "n": "long"}
_TYPES = {**_REQUIRED, "amount": "long", "flag": "string", "gust": "long", "snow": "long"}
_NULLABLE = ("flag", "gust", "snow")


@dataclass(eq=False, kw_only=True)
class Sent:
    """A raw file that was pushed into the archive.

    Attributes:
        id: Of the archive.
        path: From which it was pushed.
        rows: What it holds, without lines that do not fit.
        bad: Lines that do not fit.
        fate: `read`, or why the next run has to leave it out.
        stays: Whether its rows are in the dataset though it is left out, since the file that takes
            its place is kept back.
    """

    id: str
    path: str
    place: str
    day: int
    rows: Sequence[Row]
    bad: Sequence[str] = ()
    fate: str = "read"
    stays: bool = False

    @property
    def is_read(self) -> bool:
        return self.fate == "read" or self.stays

    @property
    def is_kept_back(self) -> bool:
        return self.fate in _KEPT_BACK


@dataclass(kw_only=True)
class Days:
    """A pipeline that is run day by day, and what must be in its tables.

    Attributes:
        root: Folder of raw files, archive and lake.
        table: Of the metastore.
        spark: Session that knows the metastore.
        columns: Of the schema of the dataset.
        declared: Keys of the declaration that are not the same on all days.
        today: Number of the day.
        sent: All that was pushed.
        by_hand: Rows that no ingest has brought.
        yesterday: Version of the dataset, and rows of each file in it, at the end of the day before.
    """

    root: Path
    table: str
    spark: Any
    columns: list[str] = field(default_factory=lambda: ["day", "place", "n", "amount", "flag"])
    declared: dict[str, str] = field(default_factory=dict)
    today: int = 0
    sent: list[Sent] = field(default_factory=list)
    by_hand: Sequence[Row] = ()
    yesterday: tuple[int, Sequence[Sequence[Row]]] = (0, ())

    # The command line.

    def run(self, *words: object, exit_code: int = 0, **environment: str) -> click.testing.Result:
        result = click.testing.CliRunner().invoke(
            main, [str(word) for word in words], prog_name="lakebed", env=environment
        )
        assert result.exit_code == exit_code, f"{words}: {result.output} {result.exception!r}"
        return result

    def json(self, *words: object, **options: Any) -> Any:
        return json.loads(self.run(*words, "-o", "json", **options).stdout)

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def dataset(self) -> Path:
        return self.root / "lake" / "days"

    @property
    def declaration(self) -> Path:
        return self.root / "days.toml"

    def declare(self, **keys: str) -> None:
        """Write the declaration of the ingest, with further keys."""
        self.declared |= keys
        unknown = self.declared.get("unknown", "reject")
        supersede = self.declared.get("supersede")
        properties = {
            "publish.hive": "true",
            "publish.hive.table": self.table,
            "publish.delta": "true",
            "publish.iceberg": "true",
        }
        self.declaration.write_text(
            'name = "daily"\n[source]\nstorage = "raw"\nwhat = "counts"\nformat = "csv"\n'
            f'[ingest]\nunknown = "{unknown}"\nstart = 2026-01-01\nend = 2026-12-31\n'
            + (f'supersede = "{supersede}"\n' if supersede else "")
            + '[dataset]\ninto = "lake/days"\nschema = "days.avsc"\npartition_by = "day"\n'
            + "".join(f'properties."{name}" = "{value}"\n' for name, value in properties.items())
        )

    def write_schema(self) -> Path:
        """Write the schema of the dataset."""
        fields = [
            {"name": name, "type": ["null", _TYPES[name]], "default": None}
            if name in _NULLABLE
            else {"name": name, "type": _TYPES[name]}
            for name in self.columns
        ]
        path = self.root / "days.avsc"
        path.write_text(json.dumps({"type": "record", "name": "count", "fields": fields}))
        return path

    # The places.

    def rows_of(self, place: str, day: int, columns: Sequence[str], edition: int) -> list[Row]:
        """Make the rows of a place and a day; another edition has other amounts, and fewer rows."""
        made = []
        for n in range(ROWS_A_FILE - edition):
            row = {
                "day": str(FIRST_DAY + dt.timedelta(days=day)),
                "place": place,
                "n": n,
                "amount": 1000 * day + 10 * n + edition,
                "flag": "ab"[n % 2],
                "gust": 7 * n,
                "snow": n - 3,
            }
            made.append({name: row[name] for name in columns})
        return made

    def send(
        self,
        place: str,
        day: int,
        columns: Sequence[str],
        *,
        edition: int = 0,
        prefix: str = "",
        bad: Sequence[str] = (),
        is_cut: bool = False,
        content: bytes | None = None,
        replaces: Sent | None = None,
        fate: str = "read",
    ) -> Sent:
        """Push a file.

        Args:
            place: Where it is from.
            day: Of its rows.
            columns: Of its rows.
            edition: Other editions have other amounts.
            prefix: Of its name.
            bad: Lines that do not fit.
            is_cut: Whether its end is missing.
            content: In place of rows.
            replaces: What is left out from now on, since this file takes its place.
            fate: What becomes of it, if it has no column that the dataset lacks.
        """
        if self.declared.get("unknown") == "keep":
            self.columns += [name for name in columns if name not in self.columns]
        elif not set(columns) <= set(self.columns):
            fate = "refused"
        rows = self.rows_of(place, day, columns, edition)
        if content is None:
            lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows), *bad]
            content = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        date = FIRST_DAY + dt.timedelta(days=day)
        path = self.root / "out" / place / f"{prefix}{date}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: len(content) * 2 // 3] if is_cut else content)
        (record,) = self.json(
            "archive", "push", path, "--where", place, "--what", "counts", "--start", date,
            "--end", f"{date}T23:59", "--storage", self.raw,
        )  # fmt: skip
        sent = Sent(
            id=record["id"], path=str(path), place=place, day=day, rows=rows, bad=bad, fate=fate
        )
        if replaces is not None:
            replaces.fate, replaces.stays = "superseded", False
        self.sent.append(sent)
        return sent

    def file(self, place: str, day: int) -> Sent:
        """Return the file of a place and a day that was sent last."""
        return [sent for sent in self.sent if (sent.place, sent.day) == (place, day)][-1]

    # Runs, and what they must say and leave behind.

    def ingest(self, *options: object, is_outage: bool = False) -> dict[str, Any]:
        """Run the ingest, and check its exit code, what it says, and all tables."""
        kept_back = [sent for sent in self.sent if sent.is_kept_back]
        result = self.run(
            "ingest", self.declaration, "--local", *options, "-o", "json",
            exit_code=9 if is_outage else 2 if kept_back else 0,
            **_OUTAGE if is_outage else {},
        )  # fmt: skip
        report: dict[str, Any] = json.loads(result.stdout)
        path_of = {sent.id: (sent.path, sent.id) for sent in self.sent}
        told = {
            path_of[entry["location"].split("/")[-2]]: entry["why"] for entry in report["left_out"]
        }
        left_out = {path_of[sent.id]: sent.fate for sent in self.sent if sent.fate != "read"}
        assert told == left_out, (
            f"day {self.today}: told {told.items() - left_out.items()}, "
            f"left out {left_out.items() - told.items()}"
        )
        assert all(_SAID[why] in result.stderr for why in left_out.values()), result.stderr
        assert sum(sent.path in result.stderr for sent in kept_back) >= min(5, len(kept_back))
        assert ("See why with: " in result.stderr) == (report["rejected_count"] > 0), result.stderr
        assert ("not published" in result.stderr) == is_outage, result.stderr
        self.check_tables(hive=not is_outage)
        return report

    def end_day(self) -> None:
        """Run once more, which must say the same and change nothing; then it is night."""
        version = self.json("show", self.dataset)["version"]
        report = self.ingest()
        assert (report["version"], report["batch_id"]) == (version, None), f"day {self.today}"
        self.yesterday = version, [sent.rows for sent in self.sent if sent.is_read]
        self.today += 1

    def expected(self) -> Counter[str]:
        """Return the rows that must be in every table, each as a text."""
        read = (row for sent in self.sent if sent.is_read for row in sent.rows)
        return counted([*read, *self.by_hand])

    def check_tables(self, *, hive: bool = True) -> None:
        """Compare what each reader gets with what was sent."""
        expected = self.expected()
        tables = {
            "lakebed": self.json("query", self.dataset),
            "delta": by_deltalake(self.dataset).to_pylist(),
            "iceberg": by_pyiceberg(self.dataset).to_pylist(),
        }
        if hive:
            shown = self.spark.table(self.table).collect()
            tables["hive"] = [row.asDict() for row in shown]
        for name, rows in tables.items():
            found = counted(rows)
            assert found == expected, (
                f"day {self.today}, {name}: {sum(found.values())} rows for {sum(expected.values())}; "
                f"too many: {list(found - expected)[:3]}, missing: {list(expected - found)[:3]}"
            )


def counted(rows: Collection[Mapping[str, Any]]) -> Counter[str]:
    """Count rows, each as a text without columns of null and those that tables have beside the fields."""
    return Counter(
        json.dumps({name: row[name] for name in _TYPES if row.get(name) is not None}, default=str)
        for row in rows
    )

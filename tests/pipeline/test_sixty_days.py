"""Days of raw files of three places, from an archive to tables of Hive, Delta and Iceberg.

Each day three places send a file, much goes wrong with them, and `lakebed ingest` runs. After each
run all tables hold the rows that were counted when the files were made, and the run names what is
not among them.
"""

from __future__ import annotations

import gzip
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_days import Days, Sent

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(3600)]

STEPS = 12
GAINED, LOST, KEPT = 4, 8, 9  # steps at which files gain `gust`, lose `flag`, gain `snow`
OUTAGE = 7  # step at which no metastore answers
FEW_BAD = ("garbage", "2026-01-01,south,two,3")
MANY_BAD = tuple(f"garbage {n}" for n in range(15))


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    name = f"day_tests.t{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize(
    "days_a_step",
    [pytest.param(1, id="12-days"), pytest.param(5, id="60-days", marks=pytest.mark.long)],
)
def test_tables_hold_what_was_sent_after_every_day_and_runs_name_what_they_leave_out(
    spark, table, tmp_path, days_a_step
) -> None:
    days = Days(root=tmp_path, table=table, spark=spark)
    story = Story(days, days_a_step)

    for _ in range(STEPS * days_a_step):
        story.tell_a_day()

    assert not any(sent.is_kept_back for sent in days.sent)
    assert_quarantine_holds_the_lines_that_do_not_fit(days)
    for name in ("days", "days_quarantine"):
        assert_cleanup_deletes_what_its_dry_run_lists(days, tmp_path / "lake" / name)
    days.check_tables()
    days.ingest()


def assert_quarantine_holds_the_lines_that_do_not_fit(days: Days) -> None:
    rows = days.json("query", f"{days.dataset}_quarantine")
    lines = Counter(row["text"] for row in rows if row["kind"] == "line")
    assert lines == Counter(line for sent in days.sent if sent.is_read for line in sent.bad)
    assert {row["where"] for row in rows if row["kind"] != "line"} == {"east", "isle"}


def assert_cleanup_deletes_what_its_dry_run_lists(days: Days, dataset: Path) -> None:
    clean_up = ("cleanup", dataset, "--older-than", "0s")
    before = {path for path in dataset.rglob("*") if path.is_file()}

    listed = days.json(*clean_up, "--dry-run")
    deleted = days.json(*clean_up, "--yes")

    after = {path for path in dataset.rglob("*") if path.is_file()}
    assert listed
    assert deleted == listed
    assert before - after == {dataset.parent / file["key"] for file in listed}
    assert days.json("check", dataset, "--deep") == []


class Story:
    """What happens on which day: a step is one day of the short form, and five of the long one."""

    def __init__(self, days: Days, days_a_step: int) -> None:
        self.days, self.days_a_step = days, days_a_step
        days.declare()
        days.write_schema()

    def is_on(self, step: int, later: int = 0) -> bool:
        """Whether today is the day of a step, or so many days later."""
        return self.days.today == step * self.days_a_step + later

    def tell_a_day(self) -> None:
        days, today = self.days, self.days.today
        self.run_events("morning")
        self.send_from_north()
        self.send_from_south()
        self.send_from_west()
        self.run_events("noon")
        taken = ("--max-rejects", 1) if today % 12 == 4 else ()
        days.ingest(*taken, is_outage=self.is_on(OUTAGE))
        self.run_events("evening")
        days.end_day()

    def run_events(self, time: str) -> None:
        """Do what happens at a time of today; the first two days are the same in both forms."""
        if (self.days.today, time) == (1, "noon"):
            self.push_again_without_a_rule()
        if (self.days.today, time) == (2, "morning"):
            self.say_which_counts()
        for step, later, when, event in EVENTS:
            if when == time and self.is_on(step, later):
                event(self)

    # What goes wrong every six days.

    def send(self, place: str, day: int | None = None, lacks: str = "", **how: Any) -> Sent:
        """Push a file of a place, of today unless told otherwise, with the columns of its day."""
        day = self.days.today if day is None else day
        begun = [step for step in (GAINED, LOST, KEPT) if day >= step * self.days_a_step]
        columns = ["day", "place", "n", "amount"]
        columns += [] if LOST in begun else ["flag"]
        columns += ["gust"] if GAINED in begun else []
        columns += ["snow"] if KEPT in begun else []
        columns = [name for name in columns if name != lacks]
        return self.days.send(place, day, columns, **how)

    def send_from_north(self) -> None:
        """Cut a file, and send it again as a whole; and correct one."""
        today, of = self.days.today, self.days.file
        match today % 6:
            case 2:
                self.send("north", is_cut=True, fate="truncated")
                return
            case 3:
                self.send("north", today - 1, replaces=of("north", today - 1))
            case 5:
                self.send("north", today - 2, replaces=of("north", today - 2), edition=1)
        self.send("north")

    def send_from_south(self) -> None:
        """Send few lines that do not fit, and many, which are taken later, or mended."""
        today, of = self.days.today, self.days.file
        match today % 12:
            case 1 | 7:
                self.send("south", bad=FEW_BAD)
                return
            case 3 | 9:
                self.send("south", bad=MANY_BAD, fate="rejects")
                return
            case 4:
                of("south", today - 1).fate = "read"  # with --max-rejects
            case 10:
                self.send("south", today - 1, replaces=of("south", today - 1))
        self.send("south")

    def send_from_west(self) -> None:
        """Send a file three days late, and one again under another name."""
        today, of = self.days.today, self.days.file
        if self.is_on(11):
            self.send("west", lacks="amount", fate="refused")
            return
        match today % 6:
            case 0:
                return
            case 3:
                self.send("west", today - 3)
            case 4:
                self.send("west", today - 1, replaces=of("west", today - 1), prefix="again-")
        self.send("west")

    # What happens once.

    def push_again_without_a_rule(self) -> None:
        """Nothing says yet which of two files with one path counts."""
        self.send("north", 0, edition=1, fate="unclear")
        self.send("south", 0, fate="copy")

    def say_which_counts(self) -> None:
        days = self.days
        days.declare(supersede="span")
        for place in ("north", "south"):
            first, last = (sent for sent in days.sent if (sent.place, sent.day) == (place, 0))
            first.fate, last.fate = "superseded", "read"

    def add_rows_by_hand(self) -> None:
        """Replace the rows of a named run beside those of the ingest."""
        days = self.days
        edition = int(bool(days.by_hand))
        rows = days.rows_of("hand", 0, ["day", "place", "n", "amount"], edition)
        rows += days.rows_of("hand", days.today, ["day", "place", "n", "amount"], edition)
        path = days.root / "by-hand.csv"
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("".join(f"{line}\n" for line in lines))
        days.json("rerun", days.dataset, path, "--run", "by hand")
        days.by_hand = rows
        days.check_tables()

    def send_garbage(self) -> None:
        self.send("east", content=bytes(range(256)) * 4, fate="truncated")
        self.send("isle", content=gzip.compress(b"what is this?\n" * 9), fate="refused")

    def retract_garbage(self) -> None:
        for place in ("east", "isle"):
            self.retract(self.days.file(place, self.days.today - 1), "garbage")

    def retract(self, sent: Sent, reason: str) -> None:
        days = self.days
        days.json("archive", "retract", sent.id, "--reason", reason, "--storage", days.raw)
        sent.fate = "held"

    def add_the_gained_column(self) -> None:
        days = self.days
        days.columns.append("gust")
        days.json("schema", "update", days.dataset, "--schema", days.write_schema())
        for sent in days.sent:
            sent.fate = "read" if sent.fate == "refused" else sent.fate

    def retract_a_good_file(self) -> None:
        self.retract(self.days.file("south", self.days.today), "under review")

    def restore_it(self) -> None:
        days = self.days
        sent = days.file("south", days.today - 1)
        days.json("archive", "restore", sent.id, "--storage", days.raw)
        sent.fate = "read"

    def read_a_day_again(self) -> None:
        days = self.days
        files = [days.file(place, days.today - 1) for place in ("north", "west")]
        report = days.ingest(*(word for sent in files for word in ("--again", sent.id)))
        assert (report["file_count"], report["replaced_count"]) == (2, 2)

    def keep_columns(self) -> None:
        self.days.declare(unknown="keep")

    def hold_a_file(self) -> None:
        days = self.days
        sent = days.file("north", days.today)
        days.json("ingest", days.declaration, "--hold", sent.id, "--reason", "under review")
        sent.fate = "held"

    def release_it(self) -> None:
        days = self.days
        sent = days.file("north", days.today - 1)
        days.json("ingest", days.declaration, "--release", sent.id)
        sent.fate = "read"

    def roll_back_and_hold(self) -> None:
        """South has sent what is wrong: take the day out, then bring the other files back."""
        days = self.days
        version, known = days.yesterday
        wrong = days.file("south", days.today)
        taken_out = [sent for sent in days.sent if sent.is_read and sent.rows not in known]

        days.json("rollback", days.dataset, "--version", version, "--hold", "--reason", "wrong")
        for sent in taken_out:
            sent.fate = "held"
        days.check_tables()
        days.ingest()

        others = [sent.id for sent in taken_out if sent is not wrong]
        days.json(
            "ingest", days.declaration, *(word for one in others for word in ("--release", one))
        )
        for sent in taken_out:
            sent.fate = "held" if sent is wrong else "read"
        days.ingest()

        self.send("south", edition=1)
        days.ingest()

    def correct_by_a_cut_file(self) -> None:
        """What would be replaced stays, since the correction is not whole."""
        corrected = self.days.file("south", self.days.today - 2)
        self.send("south", self.days.today - 2, edition=1, is_cut=True, fate="truncated")
        corrected.fate, corrected.stays = "superseded", True

    def correct_it_again(self) -> None:
        day = self.days.today - 3
        old, cut = (sent for sent in self.days.sent if (sent.place, sent.day) == ("south", day))
        self.send("south", day, edition=1, replaces=cut)
        old.stays = False

    def mend_the_lost_column(self) -> None:
        self.send("west", replaces=self.days.file("west", self.days.today))
        self.days.ingest()


EVENTS = (  # step, days later, when, what
    (2, 0, "evening", Story.add_rows_by_hand),
    (3, 0, "noon", Story.send_garbage),
    (3, 1, "morning", Story.retract_garbage),
    (GAINED, 2, "morning", Story.add_the_gained_column),
    (5, 0, "evening", Story.add_rows_by_hand),
    (6, 0, "noon", Story.retract_a_good_file),
    (6, 1, "morning", Story.restore_it),
    (LOST, 0, "noon", Story.correct_by_a_cut_file),
    (LOST, 0, "evening", Story.read_a_day_again),
    (LOST, 1, "morning", Story.correct_it_again),
    (KEPT, 0, "morning", Story.keep_columns),
    (KEPT, 0, "noon", Story.hold_a_file),
    (KEPT, 1, "morning", Story.release_it),
    (10, 0, "evening", Story.roll_back_and_hold),
    (11, 0, "evening", Story.mend_the_lost_column),
)

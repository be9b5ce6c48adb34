"""A lake as somebody might have it, one of somebody who means harm, and a browser to look at them."""

from __future__ import annotations

import datetime as dt
import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from browsing import Opened, started_browser

import lakebed
from lakebed import by
from lakebed.errors import StorageError
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.pipeline.run_log import RunLog
from lakebed.upkeep.step_report import StepReport

MADE_AT = dt.datetime(2013, 6, 1, 6, tzinfo=dt.UTC)
SEEN_AT = dt.datetime(2013, 7, 20, 9, 30, tzinfo=dt.UTC)
# Where pictures of the pages go, for docs/report.md.
PICTURES = os.environ.get("LAKEBED_PICTURES")

SCRIPT = "<script>document.title='run';alert('x')</script><img src=x onerror=alert(1)>"
LONG = "x" * 10_000
LEFTWARDS = "\u202egpj.exe مرحبا بالعالم"
HOSTILE = (SCRIPT, LONG, LEFTWARDS)

_FLIGHTS = pa.schema(
    [
        ("day", pa.date32()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("dep_delay", pa.float64()),
    ]
)
_CARRIERS = {"UA": 60, "B6": 50, "EV": 45, "DL": 40, "AA": 30, "MQ": 20, "US": 15, "WN": 9}


@pytest.fixture(autouse=True, scope="module")
def _later() -> Iterator[None]:
    """Let all tests see the lakes as they were on one day."""
    with time_machine.travel(SEEN_AT, tick=True):
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Archive:
    """Return an archive of a raw file a day, of two kinds."""
    with time_machine.travel(MADE_AT, tick=True):
        archive = lakebed.open_archive(str(tmp_path_factory.mktemp("raw")))
        for day in _days(8):
            lines = (f'{{"station": "{place}", "temp": {day.day}}}\n' for place in ("EWR", "JFK"))
            archive.push(
                io.BytesIO("".join(lines).encode()),
                path=f"/srv/weather/{day}.jsonl",
                where="ewr1",
                what="weather",
                start=day.isoformat(),
                id=f"weather-{day}",
            )
    return archive


@pytest.fixture(scope="session")
def lake(archive: lakebed.Archive) -> lakebed.Repository:
    """Return a lake like that of the demo: loaded by day, once more, in part deleted, protected."""
    with time_machine.travel(MADE_AT, tick=True) as clock, pytest.MonkeyPatch.context() as own:
        # Who protects is told on the page, and should be the same in all pictures.
        own.setenv("LOGNAME", "ann")
        own.setattr(socket, "gethostname", lambda: "desk")
        repository = lakebed.open_repository("memory://lake")
        descriptor = lakebed.DatasetDescriptor(
            schema=_FLIGHTS, partition_by=[by.identity("carrier")], index=["day"]
        )
        flights = repository.create("flights", descriptor)
        repository.create(
            "weather",
            lakebed.DatasetDescriptor(
                schema=pa.schema([("station", pa.string()), ("temp", pa.int64())])
            ),
        )
        _run_daily(repository, archive, clock)
        for day in _days(24):
            clock.move_to(dt.datetime.combine(day, dt.time(23, 15), dt.UTC))
            flights.append(_rows_of(day), run=f"load-{day}")
        flights.rerun(_rows_of(dt.date(2013, 6, 4)), run="load-2013-06-04", replace_all=True)
        flights.delete(flights.where("carrier = 'WN' and day = '2013-06-09'"))
        flights.protections.add(version=20, reason="the figures of June")
        repository.create("airports", lakebed.DatasetDescriptor(schema=_FLIGHTS))
    return repository


@pytest.fixture(scope="session")
def hostile_lake() -> lakebed.Repository:
    """Return a lake whose names and values try to become part of the page."""
    with time_machine.travel(MADE_AT, tick=True):
        repository = lakebed.open_repository("memory://hostile")
        schema = pa.schema([("day", pa.date32()), ("name", pa.string()), ("text", pa.string())])
        descriptor = lakebed.DatasetDescriptor(
            schema=schema, partition_by=[by.identity("name")], index=["text"]
        )
        dataset = repository.create("d", descriptor)
        for text in HOSTILE:
            value = text[:100]  # as a name of a directory
            dataset.append([{"day": MADE_AT.date(), "name": value, "text": text}], run=text)
        dataset.protections.add(version=2, reason=LONG)
        dataset.protections.add(version=3, reason=LEFTWARDS)
        for number, text in enumerate(HOSTILE):
            log = RunLog(
                store=repository.store, dataset="d", pipeline=text[:100], file=f"/{text[:90]}.toml"
            )
            step = StepReport(
                step="ingest",
                status="failed",
                summary=text,
                facts={"left_out": [{"location": text, "why": text, "detail": text}]},
                error=StorageError(text, hint=text),
            )
            log.end(
                PipelineReport(
                    name=text[:100],
                    dataset=f"{repository.uri}/d",
                    run_id=f"{number:016x}",
                    began_at=MADE_AT,
                    steps=(step,),
                )
            )
    return repository


@pytest.fixture(scope="session")
def hostile_archive() -> lakebed.Archive:
    """Return an archive whose files do."""
    archive = lakebed.open_archive("memory://hostile-raw")
    for number, text in enumerate(HOSTILE):
        archive.push(
            io.BytesIO(SCRIPT.encode()),
            path=f"/{text}.html",
            where="web1",
            what="log",
            start="2013-06-01",
            id=f"hostile-{number}",
            extra={"note": text},
        )
    return archive


@pytest.fixture
def keep_picture(tmp_path: Path) -> Callable[[str, Opened, str], None]:
    """Return what keeps a picture of this run: in the documentation, if that is asked for."""

    def keep(name: str, opened: Opened, begin: str) -> None:
        """Draw the page from an element on, as much as fits onto a screen."""
        height = opened.page.evaluate("document.documentElement.scrollHeight")
        top = opened.page.locator(begin).evaluate("each => each.getBoundingClientRect().top")
        clip = {"x": 0, "y": top, "width": 1000, "height": min(height - top, 860)}
        picture = opened.page.screenshot(clip=clip, full_page=True)
        assert len(picture) < 150_000, f"{name} has {len(picture):,} bytes"
        (tmp_path if PICTURES is None else Path(PICTURES)).joinpath(name).write_bytes(picture)

    return keep


def _run_daily(repository: lakebed.Repository, archive: lakebed.Archive, clock: Any) -> None:
    """Let a pipeline read the raw files of each day; once, the storage is down."""
    pipeline = lakebed.Pipeline(
        ingest=lakebed.Ingest(
            name="weather",
            into=f"{repository.uri}/weather",
            source=lakebed.FromArchive(
                storage=archive.store.uri, what="weather", start="2013-06-01", end="now"
            ),
            format="json",
        ),
        cleanup=lakebed.CleanupRule(),
        max_age="26h",
    )
    for day in _days(8):
        clock.move_to(dt.datetime.combine(day, dt.time(23, 40), dt.UTC))
        pipeline.run()
    clock.shift(dt.timedelta(days=1))
    log = RunLog(store=repository.store, dataset="weather", pipeline="weather", max_age_s=26 * 3600)
    run_id, began_at = "0123456789abcdef", dt.datetime.now(dt.UTC)
    error = StorageError("The archive denied access to s3://raw.", hint="Check the credentials.")
    step = StepReport(step="ingest", status="failed", summary=error.message, error=error)
    log.begin(run_id, began_at)
    log.end(
        PipelineReport(
            name="weather",
            dataset=f"{repository.uri}/weather",
            run_id=run_id,
            began_at=began_at,
            duration_s=2.5,
            steps=(step,),
        )
    )


def _days(count: int) -> list[dt.date]:
    return [MADE_AT.date() + dt.timedelta(days=place) for place in range(count)]


def _rows_of(day: dt.date) -> list[dict[str, Any]]:
    return [
        {
            "day": day,
            "carrier": carrier,
            "flight": 100 + number,
            "dep_delay": float(number * day.day % 47 - 5),
        }
        for carrier, count in _CARRIERS.items()
        if (day.day + count) % 4
        for number in range(count)
    ]

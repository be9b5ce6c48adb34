"""What a trial says of stores that keep writers apart, and of some that do not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import time_machine
from s3_services import HastyService, served

import lakebed
from lakebed.cli import main
from lakebed.store import open_store
from lakebed.store.trial import CheckStatus, StoreTrial, try_store

SOURCE = Path(lakebed.__file__).parents[1]
OF_WRITERS = [
    "create",
    "replace",
    "replace what is gone",
    "heads",
    "race to create",
    "race to replace",
    "read after write",
    "list after write",
]
OTHERS = ["ranges", "multipart", "clock"]


@pytest.fixture
def hasty_options(s3_application: Any, s3_options: dict[str, str]) -> Iterator[dict[str, str]]:
    with served(HastyService(s3_application), threaded=True) as url:
        yield {**s3_options, "endpoint": url}


@pytest.fixture
def place() -> str:
    return f"s3://lake/{uuid.uuid4().hex}"


def objects_at(place: str, s3_options: dict[str, str]) -> list[str]:
    import obstore

    store = open_store(place, storage_options=s3_options)
    found = obstore.list(store._client, place.removeprefix("s3://lake/")).collect()
    return [one["path"] for one in found]


def failed(trial: StoreTrial) -> list[str]:
    return [check.name for check in trial.checks if check.status is CheckStatus.FAILED]


def test_store_that_keeps_writers_apart_is_told_so_and_nothing_stays(
    place: str, s3_options: dict[str, str]
) -> None:
    open_store(place, storage_options=s3_options).put("mine", b"x")
    before = objects_at(place, s3_options)

    trial = try_store(place, storage_options=s3_options, rounds=5)

    assert [check.name for check in trial.checks] == OF_WRITERS + OTHERS
    assert failed(trial) == []
    assert trial.keeps_writers_apart
    assert trial.verdict.value == "yes"
    race = {check.name: check for check in trial.checks}["race to create"]
    assert race.value == "5 of 5"
    assert objects_at(place, s3_options) == before


@pytest.mark.parametrize("url", ["file", "memory"])
def test_directory_and_memory_keep_writers_apart_and_nothing_stays(
    url: str, tmp_path: Path
) -> None:
    place = f"memory://{uuid.uuid4().hex}" if url == "memory" else str(tmp_path)

    trial = try_store(place, rounds=10)

    assert failed(trial) == []
    assert trial.keeps_writers_apart
    assert list(tmp_path.iterdir()) == []
    assert list(open_store(place).list()) == []


@pytest.mark.parametrize(
    ("forgotten", "expected"),
    [
        ("If-None-Match", ["create", "heads", "race to create"]),
        ("If-Match", ["replace", "replace what is gone", "heads", "race to replace"]),
    ],
)
def test_service_that_ignores_a_condition_is_told_with_all_that_follows(
    place: str,
    forgetful_s3: Any,
    s3_options: dict[str, str],
    forgotten: str,
    expected: list[str],
) -> None:
    forgetful_s3[0].forgets = (forgotten,)

    trial = try_store(place, storage_options={**s3_options, "endpoint": forgetful_s3[1]}, rounds=3)

    assert failed(trial) == expected
    race = {check.name: check for check in trial.checks}[expected[-1]]
    assert race.value == "0 of 3"
    assert "8 puts were accepted, 7 of them lost" in race.detail
    assert not trial.keeps_writers_apart
    assert (trial.verdict.value, trial.verdict.status) == ("no", "failed")
    assert objects_at(place, s3_options) == []


@pytest.mark.parametrize("forgotten", ["If-None-Match", "If-Match"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"/[^/]+\.by-dataset-metadata\.json$", ["heads", "race"]),
        (r"\.by-dataset-metadata\.msgpack\.zstd$", ["heads"]),
        (r"/lake/[0-9a-f]{32}/[^/]+\.by-dataset-metadata\.json$", ["heads"]),
    ],
    ids=["json", "msgpack", "in the repository alone"],
)
def test_service_that_ignores_a_condition_for_heads_alone_is_found(
    place: str,
    forgetful_s3: Any,
    s3_options: dict[str, str],
    forgotten: str,
    pattern: str,
    expected: list[str],
) -> None:
    forgetful_s3[0].forgets, forgetful_s3[0].forgets_at = (forgotten,), pattern

    trial = try_store(place, storage_options={**s3_options, "endpoint": forgetful_s3[1]}, rounds=3)

    race = "race to create" if forgotten == "If-None-Match" else "race to replace"
    assert failed(trial) == [race if name == "race" else name for name in expected]
    assert not trial.keeps_writers_apart
    assert objects_at(place, s3_options) == []


def test_verdict_says_what_was_tried_and_what_no_trial_finds(tmp_path: Path) -> None:
    verdict = try_store(str(tmp_path), rounds=1).verdict

    assert "names of heads" in verdict.detail
    assert "a trial cannot find" in verdict.detail
    assert "safe" not in verdict.detail


def test_note_of_a_service_that_has_kept_conditions_before_is_taken_back(
    place: str, forgetful_s3: Any, s3_options: dict[str, str]
) -> None:
    options = {**s3_options, "endpoint": forgetful_s3[1]}
    open_store(place, storage_options=options).check_writable()
    assert objects_at(place, s3_options)
    forgetful_s3[0].forgets = ("If-Match",)

    try_store(place, storage_options=options, rounds=1)

    assert objects_at(place, s3_options) == []


def test_service_that_looks_first_and_writes_then_fails_the_races_only(
    place: str, hasty_options: dict[str, str], s3_options: dict[str, str]
) -> None:
    open_store(place, storage_options=hasty_options).check_writable()  # finds nothing

    trial = try_store(place, storage_options=hasty_options, rounds=3)

    assert failed(trial) == ["race to create", "race to replace"]
    assert not trial.keeps_writers_apart


def test_store_that_does_not_answer_is_asked_once_and_the_verdict_is_unknown(
    place: str, s3_options: dict[str, str]
) -> None:
    begin = time.monotonic()

    trial = try_store(place, storage_options={**s3_options, "endpoint": "http://127.0.0.1:9"})

    assert failed(trial) == ["create"]
    assert trial.verdict.value == "unknown"
    assert time.monotonic() - begin < 10


def test_clock_that_is_off_is_a_warning_and_no_reason_against_writing(tmp_path: Path) -> None:
    with time_machine.travel(time.time() + 3600):  # files have the time of the machine
        trial = try_store(str(tmp_path), rounds=1)

    clock = trial.checks[-1]
    assert (clock.name, clock.status) == ("clock", "warning")
    assert 3590 < int(clock.value.removesuffix(" s")) < 3610
    assert "behind" in clock.detail
    assert trial.keeps_writers_apart


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_in_the_middle_of_a_race_leaves_nothing(
    place: str, forgetful_s3: Any, s3_options: dict[str, str], number: signal.Signals
) -> None:
    service, url = forgetful_s3
    given = {**s3_options, "endpoint": url}
    process = subprocess.Popen(
        [sys.executable, "-m", "lakebed", "doctor", place, "--races", "--rounds", "10000"],
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "LAKEBED_STORAGE_OPTIONS": json.dumps(given),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has SIGINT ignored, which children inherit,
        # and nohup SIGHUP.
        preexec_fn=lambda: (
            signal.signal(signal.SIGINT, signal.default_int_handler),
            signal.signal(signal.SIGHUP, signal.SIG_DFL),
        ),
    )
    deadline = time.monotonic() + 60
    while not any("race/create-5" in path for _, path in service.requests):
        assert time.monotonic() < deadline, "no race has begun"
        time.sleep(0.02)

    process.send_signal(number)
    _, log = process.communicate(timeout=60)

    assert process.returncode != 0
    assert "Traceback" not in log
    assert objects_at(place, s3_options) == []


class TestCommand:
    """What `lakebed doctor --races` shows."""

    @staticmethod
    def rows(place: str, options: dict[str, str]) -> tuple[int, dict[str, dict[str, str]]]:
        given = [f"--storage-option={name}={value}" for name, value in options.items()]
        line = ["doctor", place, "--races", "--rounds", "2", *given, "-o", "json"]
        result = click.testing.CliRunner().invoke(main, line)
        return result.exit_code, {row["name"]: row for row in json.loads(result.stdout)}

    def test_every_check_has_a_line_and_the_last_is_the_verdict(
        self, place: str, s3_options: dict[str, str]
    ) -> None:
        exit_code, rows = self.rows(place, s3_options)

        assert exit_code == 0
        names = list(rows)
        assert names[names.index("store") + 1 :] == [*OF_WRITERS, *OTHERS, "several writers"]
        assert rows["several writers"]["value"] == "yes"

    def test_failure_has_an_exit_code_and_a_remedy(
        self, place: str, forgetful_s3: Any, s3_options: dict[str, str]
    ) -> None:
        forgetful_s3[0].forgets = ("If-None-Match",)

        exit_code, rows = self.rows(place, {**s3_options, "endpoint": forgetful_s3[1]})

        assert exit_code == 1
        assert rows["several writers"]["status"] == "failed"
        assert "another service" in rows["several writers"]["detail"]

    def test_directory_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        exit_code, rows = self.rows(str(tmp_path / "laek"), {})

        assert exit_code == 0
        assert rows["store"]["status"] == "absent"
        assert list(tmp_path.iterdir()) == []

    def test_store_that_is_opened_for_reading_is_not_tried(
        self, place: str, forgetful_s3: Any, s3_options: dict[str, str]
    ) -> None:
        options = {**s3_options, "endpoint": forgetful_s3[1], "conditional_put": "disabled"}

        exit_code, rows = self.rows(place, options)

        assert exit_code == 0
        assert "read only" in rows["store"]["value"] + rows["store"]["detail"]
        assert forgetful_s3[0].requests == []

    def test_address_that_cannot_be_opened_is_a_failure(self) -> None:
        exit_code, rows = self.rows("nowhere://lake", {})

        assert exit_code == 1
        assert rows["store"]["status"] == "failed"


def test_error_of_one_check_is_told_in_its_line(service: Any) -> None:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    service.script((403, {}, b""))

    trial = try_store("s3://lake/pre", storage_options={**given, "max_retries": "0"})

    assert failed(trial) == ["create"]
    assert "denied" in trial.checks[0].detail
    assert not trial.is_complete


def test_nothing_more_is_tried_where_nothing_was_answered(service: Any) -> None:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    service.script((0, {}, b""))

    trial = try_store("s3://lake/pre", storage_options={**given, "max_retries": "0"})

    assert failed(trial) == ["create"]
    assert [one.method for one in service.requests] == ["PUT", "GET"]  # and what may be there


def test_interrupt_of_a_library_call_is_raised_and_leaves_nothing(
    place: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.store.object import ObjectStore

    def interrupted(self: ObjectStore, *arguments: object, **named: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(ObjectStore, "_replace", interrupted)

    with pytest.raises(KeyboardInterrupt):
        try_store(place, storage_options=s3_options)

    assert objects_at(place, s3_options) == []


def test_store_that_does_not_answer_is_not_told_to_be_fine() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        options = {
            "endpoint": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "allow_http": "true",
            "skip_signature": "true",
            "max_retries": "0",
        }
        given = [f"--storage-option={name}={value}" for name, value in options.items()]
        line = ["doctor", "s3://lake/pre", "--races", *given, "-o", "json"]
        result = click.testing.CliRunner().invoke(main, line)

    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert rows["store"]["status"] == "failed"
    assert rows["create"]["value"] == "unknown"
    assert "endpoint" in rows["create"]["detail"]

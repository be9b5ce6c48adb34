"""Runs of a pipeline that declares checks: bad batches are held back, and checks change with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from sales_days import SCHEMA, TODAY, Row, Sales, rows_in
from table_doors import by_deltalake

import lakebed
from lakebed import Pipeline, checks
from lakebed.errors import ChecksFailedError, CommitConflictError, InvalidInputError, LakebedError

DAY = str(TODAY)
GOOD: list[Row] = [(DAY, "north", 1), (DAY, "south", 2)]
BAD: Row = (DAY, "north", -5)
SANE = '"amount >= 0"'
OF_EACH_KIND = """
sane = {rows = "amount >= 0", on_failure = "warn"}
named = {not_null = ["shop", "day"]}
ids = {unique = ["shop", "amount"]}
shops = {reference = "shop -> shops.name"}
volume = {row_count_within = 0.5, of_last = 3, on_failure = "warn"}
some = {min_rows = 1, max_rows = 1000}
few = {max_rows = 1000}
recent = {column = "day", within = "48h"}
"""


def sales_with(root: Path, declared: str | None) -> Sales:
    sales = Sales(root=root, tables="delta = true\n", checks=declared)
    sales.declare()
    return sales


def redeclare(sales: Sales, declared: str | None) -> Pipeline:
    sales.checks = declared
    return sales.declare()


def declared_in(sales: Sales) -> dict[str, str]:
    return {name: str(one) for name, one in sales.dataset().descriptor.checks.items()}


def test_a_bad_batch_is_refused_and_nothing_of_it_is_committed(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f"sane = {SANE}\n")
    pipeline = sales.declare()
    sales.write("a", GOOD)
    assert pipeline.run()["checks"].summary == "ingest creates the dataset with them"
    version = sales.dataset().version
    sales.write("b", [*GOOD, BAD])

    report = pipeline.run(fail=False)

    assert (report["checks"].status, report["ingest"].status) == ("nothing", "failed")
    assert isinstance(report["ingest"].error, ChecksFailedError)
    assert (report.exit_code, report["cleanup"].status) == (2, "skipped")
    assert sales.dataset().version == version
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()).total() == len(GOOD)
    assert not (sales.lake / "sales_quarantine").exists()
    sales.write("b", [(DAY, "west", 3)])
    assert pipeline.run().is_ok
    assert sales.rows() == sales.expected()


def test_the_plan_of_a_retention_has_only_requests_of_its_own(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    sales.declare().run()

    plan = redeclare(sales, f"sane = {SANE}\n").run(dry_run=True)

    assert (plan["checks"].status, plan["retain"].status) == ("done", "nothing")
    assert plan["retain"].facts["request_count"] is None


def test_bad_rows_go_to_the_quarantine_and_are_counted(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f'sane = {{rows = {SANE}, on_failure = "quarantine"}}\n')
    good = GOOD * 5  # a tenth of the lines may be bad
    sales.write("a", [*good, BAD])

    step = sales.declare().run()["ingest"]

    assert step.summary == "1 file, 10 rows, 1 reject, sane: 1 quarantined"
    assert step.facts["checks"] == [{"name": "sane", "outcome": "quarantined", "count": 1}]
    assert step.facts["rejected_count"] == 1
    assert sales.rows() == rows_in([{"day": d, "shop": s, "amount": n} for d, s, n in good])
    (held,) = lakebed.open_repository(sales.lake)["sales_quarantine"].arrow().to_pylist()
    assert "-5" in held["text"]
    assert "sane" in held["reason"]


def test_rejected_rows_are_counted(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f'sane = {{rows = {SANE}, on_failure = "reject"}}\n')
    sales.write("a", [*GOOD, BAD])

    step = sales.declare().run()["ingest"]

    assert step.facts["checks"] == [{"name": "sane", "outcome": "rejected", "count": 1}]
    assert "sane: 1 rejected" in step.summary
    assert sales.rows().total() == 2


def test_the_checks_of_the_dataset_become_those_of_the_declaration(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    assert "checks" not in sales.declare().steps
    sales.declare().run()
    sales.dataset().evolve(lambda old: old.with_check("by_hand", checks.not_null("shop")))
    assert sales.declare().run().is_ok
    assert list(declared_in(sales)) == ["by_hand"]  # without the table they stay
    version = sales.dataset().version

    added = redeclare(sales, f'sane = {SANE}\nby_hand = {{not_null = ["day"]}}\n').run()

    assert added["checks"].summary == "1 added, 1 changed"
    assert added["checks"].facts == {
        "check_count": 2,
        "added": ["sane"],
        "changed": ["by_hand"],
        "dropped": [],
        "version": version + 1,
    }
    assert declared_in(sales) == {"sane": "condition('amount >= 0')", "by_hand": "not_null(day)"}
    again = sales.declare().run()
    assert (again["checks"].status, again["checks"].summary) == ("nothing", "2 checks in force")
    assert sales.dataset().version == version + 1
    assert redeclare(sales, "").run()["checks"].summary == "2 dropped"
    assert declared_in(sales) == {}


def test_checks_of_each_kind_are_found_in_force_by_the_next_run(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, OF_EACH_KIND)
    shops = lakebed.open_repository(sales.lake).create(
        "shops",
        lakebed.DatasetDescriptor(
            schema={**SCHEMA, "fields": [{"name": "name", "type": "string"}]}
        ),
    )
    shops.append([{"name": "north"}, {"name": "south"}])
    sales.write("a", GOOD)

    assert sales.declare().run()["ingest"].status == "done"

    assert sales.declare().run()["checks"].summary == "8 checks in force"
    assert list(declared_in(sales)) == list(sales.declare().checks or {})


def test_existing_rows_that_fail_a_new_check_keep_new_files_out(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", [*GOOD, BAD])
    sales.declare().run()
    sales.write("b", GOOD)
    pipeline = redeclare(sales, f"sane = {SANE}\n")

    report = pipeline.run(fail=False)

    assert isinstance(report["checks"].error, ChecksFailedError)
    assert (report["ingest"].status, report.exit_code) == ("skipped", 2)
    assert report["ingest"].summary == "the declared checks are not in force"
    assert (declared_in(sales), sales.rows().total()) == ({}, 3)
    assert isinstance(pipeline.run(dry_run=True, fail=False)["checks"].error, ChecksFailedError)
    # The way out that the error names.
    sales.dataset().evolve(
        lambda old: old.with_check("sane", checks.condition("amount >= 0")), existing="unchecked"
    )
    assert pipeline.run()["ingest"].facts["row_count"] == 2


def test_a_dry_run_plans_the_checks_and_declares_none(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f"sane = {SANE}\n")
    sales.write("a", GOOD)
    first = sales.declare().run(dry_run=True)
    assert first["checks"].summary == "ingest creates the dataset with them"
    assert not sales.lake.exists()
    sales.declare().run()
    version = sales.dataset().version

    plan = redeclare(sales, f'sane = {SANE}\nnamed = {{not_null = "shop"}}\n').run(dry_run=True)

    assert (plan["checks"].status, plan["checks"].facts["added"]) == ("done", ["named"])
    assert (sales.dataset().version, list(declared_in(sales))) == (version, ["sane"])


def test_a_lost_race_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    sales.declare().run()
    pipeline = redeclare(sales, f"sane = {SANE}\n")
    real, calls = lakebed.Dataset.evolve, []

    def evolve(self: lakebed.Dataset, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            real(self, *given, **named)  # the other run
            message = "The checks were declared by another."
            raise CommitConflictError(message, expected=1, actual=2)
        return real(self, *given, **named)

    monkeypatch.setattr(lakebed.Dataset, "evolve", evolve)
    monkeypatch.setattr("lakebed.upkeep.upkeep_steps.time.sleep", lambda _: None)

    report = pipeline.run()

    assert report["checks"].summary == "1 check in force: another run did it"
    assert report["checks"].attempts == 2


def test_a_run_that_ends_between_checks_and_ingest_is_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    sales.declare().run()
    sales.write("b", [BAD])
    pipeline = redeclare(sales, f'sane = {{rows = {SANE}, on_failure = "quarantine"}}\n')

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lakebed.Ingest, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    assert (list(declared_in(sales)), sales.rows().total()) == (["sane"], 2)

    report = dataclasses.replace(pipeline, ingest=_with_all_rejects(pipeline)).run()

    assert (report["checks"].status, report["ingest"].facts["rejected_count"]) == ("nothing", 1)
    assert sales.rows().total() == 2


def _with_all_rejects(pipeline: Pipeline) -> lakebed.Ingest:
    return dataclasses.replace(pipeline.ingest, max_rejects=1)


def test_an_ingest_of_the_same_file_creates_the_dataset_with_the_checks(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f"sane = {SANE}\n")
    sales.write("a", [*GOOD, BAD])

    with pytest.raises(ChecksFailedError):
        lakebed.Ingest.from_toml(sales.file).run()

    assert list(declared_in(sales)) == ["sane"]


def test_a_check_may_name_a_field_that_the_dataset_has_gained(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    sales.declare().run()
    fields = [*SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]  # type: ignore[misc]
    grown = lakebed.DatasetDescriptor(schema={**SCHEMA, "fields": fields}).schema
    sales.dataset().evolve(lambda old: dataclasses.replace(old, schema=grown))

    pipeline = redeclare(sales, """short = "note IS NULL OR note LIKE '_'"\n""")

    assert pipeline.run()["checks"].summary == "1 added"
    with pytest.raises(LakebedError, match=r"\[checks\] short: .*nte"):
        redeclare(sales, 'short = "nte IS NULL"\n')


# Publication.


def test_a_publication_waits_for_checks_if_the_declaration_says_so(tmp_path: Path) -> None:
    warns = f'sane = {{rows = {SANE}, on_failure = "warn"}}\n'
    sales = sales_with(tmp_path, warns)
    sales.tables = "delta = true\nrequire_checks = true\n"
    sales.write("a", GOOD)
    assert sales.declare().run()["publish"].status == "done"
    sales.write("b", [BAD])

    report = sales.declare().run(fail=False)

    assert "sane: warned (1)" in report["ingest"].summary
    assert (report["publish"].status, report.exit_code) == ("failed", 9)
    assert "sane (warned)" in report["publish"].summary
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()).total() == 2

    sales.tables = "delta = true\nrequire_checks = false\n"
    report = sales.declare().run()
    assert report["checks"].summary == "publications do not wait for them"
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()).total() == 3


def test_an_existing_dataset_is_told_that_publications_wait(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    sales.write("a", GOOD)
    sales.declare().run()
    sales.tables = "delta = true\nrequire_checks = true\n"

    report = sales.declare().run()

    assert report["checks"].summary == "publications wait for them"
    assert sales.dataset().descriptor.properties["publish.require_checks"] == "true"
    assert sales.declare().run()["checks"].status == "nothing"


# From code.


def test_checks_from_code_are_those_of_the_file(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, f"sane = {SANE}\n")
    of_file = sales.declare()
    bare = dataclasses.replace(of_file, checks=None, ingest=redeclare(sales, None).ingest)

    built = dataclasses.replace(bare, checks={"sane": checks.condition("amount >= 0")})

    assert (built.checks, built.steps) == (of_file.checks, of_file.steps)
    sales.write("a", GOOD)
    built.run()
    assert declared_in(sales) == {"sane": "condition('amount >= 0')"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("amount >= 0", "checks is 'amount >= 0'"),
        ({"sane": "amount >= 0"}, "Check 'sane' is a str"),
        ({"a b": checks.not_null("shop")}, "'a b' is not a valid name"),
        ({"f": checks.custom(lambda _: True)}, "cannot be declared"),
    ],
)
def test_wrong_checks_are_refused_by_name(tmp_path: Path, given: Any, said: str) -> None:
    pipeline = sales_with(tmp_path, None).declare()

    with pytest.raises(InvalidInputError, match=said):
        dataclasses.replace(pipeline, checks=given)


def test_checks_that_do_not_fit_the_dataset_stop_the_run_before_it_begins(tmp_path: Path) -> None:
    sales = sales_with(tmp_path, None)
    built = dataclasses.replace(sales.declare(), checks={"named": checks.not_null("shp")})

    with pytest.raises(LakebedError, match="'shp'"):
        built.run()

    assert not sales.lake.exists()

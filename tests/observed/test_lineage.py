"""Run events are valid for OpenLineage's client, and tell where a table has its rows from."""

from __future__ import annotations

import importlib
import json
import logging
import os
import pkgutil
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from watched_lake import SALES, Lake

import lakebed
import lakebed.telemetry
from lakebed.errors import InvalidInputError, MissingDependencyError, SchemaMismatchError

pytest.importorskip("openlineage.client")

import attrs
import jsonschema
import openlineage.client.generated
from openlineage.client import OpenLineageClient
from openlineage.client import event_v2 as events
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde
from openlineage.client.transport import Config, Transport

from lakebed.telemetry.lineage_events import JobRun
from lakebed.telemetry.lineage_names import Named, dataset_of, place_of, table_of

ROOT = Path(__file__).parents[2]
OWN_FACETS = json.loads((ROOT / "docs" / "lineage-facets.schema.json").read_text(encoding="utf-8"))

Event = dict[str, Any]
Node = tuple[str, str]


class Kept(Transport):
    """A transport that keeps the JSON of events, or fails."""

    kind = "kept"
    config_class = Config

    def __init__(self, *, fails: bool = False) -> None:
        self.sent: list[Event] = []
        self.fails = fails

    def emit(self, event: Any) -> None:
        if self.fails:
            raise ConnectionError("no route to the server")
        self.sent.append(json.loads(Serde.to_json(event)))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake.in_folder(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def ends_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    yield
    lakebed.telemetry.disable_lineage()


def listening(**options: Any) -> Kept:
    kept = Kept()
    lakebed.telemetry.enable_lineage(OpenLineageClient(transport=kept), **options)
    return kept


def classes() -> dict[str, Any]:
    """Return the client's classes of the specification, by name."""
    package = openlineage.client.generated
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        found |= {name: thing for name, thing in vars(loaded).items() if name.endswith("Facet")}
    return found


CLASSES = classes()
# Older clients have older classes of the same facets, with the same fields.
KNOWS_OUR_FACETS = Version(version("openlineage-python")) >= Version("1.54")


def build(facet: dict[str, Any]) -> None:
    """Build a facet by the class of its schema: names and types that it lacks are errors."""
    address = facet["_schemaURL"]
    name = address.rpartition("/")[2]
    facts = {key: value for key, value in facet.items() if not key.startswith("_")}
    if not address.startswith("https://openlineage.io/"):
        schema = {"$ref": f"#/$defs/{name}", "$defs": OWN_FACETS["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(facet)
        return
    made = CLASSES[name](**facts)
    if KNOWS_OUR_FACETS:
        assert version_of(address) <= version_of(attrs.asdict(made)["_schemaURL"]), address
    match name:
        case "SchemaDatasetFacet":
            module = openlineage.client.generated.schema_dataset
            assert [module.SchemaDatasetFacetFields(**one) for one in facts["fields"]]
        case "LifecycleStateChangeDatasetFacet":
            module = openlineage.client.generated.lifecycle_state_change_dataset
            assert module.LifecycleStateChange(facts["lifecycleStateChange"])
        case "ParentRunFacet":
            module = openlineage.client.generated.parent_run
            assert module.Run(**facts["run"])
            assert module.Job(**facts["job"])


def version_of(address: str) -> tuple[int, ...]:
    return tuple(map(int, address.split("/facets/")[1].split("/")[0].split("-")))


def validate(event: Event) -> None:
    """Validate an event from its JSON by the client's own classes."""
    again = events.RunEvent(
        eventType=events.RunState(event["eventType"]),
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=events.Run(**event["run"]),
        job=events.Job(**event["job"]),
        inputs=[events.InputDataset(**one) for one in event["inputs"]],
        outputs=[events.OutputDataset(**one) for one in event["outputs"]],
    )
    assert again.schemaURL == event["schemaURL"]
    groups = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        groups += [dataset.get(key, {}) for key in ("facets", "inputFacets", "outputFacets")]
    for facets in groups:
        for facet in facets.values():
            build(facet)


def node(dataset: dict[str, Any]) -> Node:
    return dataset["namespace"], dataset["name"]


def test_events_of_a_life_are_valid(lake: Lake) -> None:
    kept = listening()

    lake.demo()
    lake.lose_a_race()

    for event in kept.sent:
        validate(event)
    by_run = {event["run"]["runId"]: Counter[str]() for event in kept.sent}
    for event in kept.sent:
        by_run[event["run"]["runId"]][event["eventType"]] += 1
    assert len(by_run) > 25
    assert {tuple(kinds) for kinds in by_run.values()} == {("START", "COMPLETE"), ("START", "FAIL")}
    assert {count for kinds in by_run.values() for count in kinds.values()} == {1}
    jobs = {event["job"]["name"] for event in kept.sent}
    assert jobs >= {
        *("sales", "sales.ingest", "sales.retain", "sales.compact", "sales.publish"),
        *("sales.cleanup", "sales.publish.delta", "sales.append", "sales.rerun", "sales.upsert"),
        *("sales.delete", "sales.rollback", "sales.overwrite", "sales.compact"),
    }
    assert "sales.commit" not in jobs
    # A part of a verb is no run of its own.
    assert "sales.merge" not in jobs


def test_the_graph_from_raw_files_to_a_published_table(lake: Lake) -> None:
    kept = listening()
    lake.deliver("monday.jsonl", [{"id": 1, "shop": "north", "amount": 5}, "torn"])
    lake.deliver("tuesday.jsonl", [{"id": 2, "shop": "south", "amount": 4}])
    lake.pipeline().run()
    wednesday = lake.deliver("wednesday.jsonl", [{"id": 3, "shop": "north", "amount": 3}])
    lake.pipeline().run()
    lakebed.telemetry.disable_lineage()

    # From the events alone: raw file > batch > dataset at a version > table.
    batches: dict[int, set[str]] = {}
    versions: dict[tuple[Node, str], int | None] = {}
    tables: dict[Node, set[tuple[Node, str]]] = {}
    for event in kept.sent:
        read = {node(one): one for one in event["inputs"]}
        for output in event["outputs"]:
            facet = output.get("outputFacets", {}).get("lakebed_batches")
            for batch in facet["batches"] if facet else ():
                key = (node(output), str(batch["version"]))
                versions[key] = batch.get("batch_id")
            if "lakebed_publication" in output["facets"]:
                shown = {
                    (name, one["facets"]["version"]["datasetVersion"]) for name, one in read.items()
                }
                tables.setdefault(node(output), set()).update(shown)
        for one in read.values():
            raw = one["facets"].get("lakebed_rawFile")
            for read_into in raw["batches"] if raw else ():
                batches.setdefault(read_into["batch_id"], set()).add(one["name"])

    # Against what the lake itself records.
    sales = lake.repository.open("sales")
    recorded: dict[int, set[str]] = {}
    for file in sales.sources.list():
        recorded.setdefault(file.batch_id, set()).add(str(Path(file.location).absolute()))
    assert len(recorded) == 2
    assert {key: names for key, names in batches.items() if key in recorded} == recorded
    name = ("file", str(lake.root / "lake" / "sales"))
    committed = {
        str(commit.version): commit.batch_id for commit in sales.history() if commit.version
    }
    assert {key[1]: batch for key, batch in versions.items() if key[0] == name} == committed
    (table,) = tables
    assert table == ("file", str(lake.root / "lake" / "sales" / "data"))
    assert (name, str(sales.version)) in tables[table]
    # So from the table back to the file that came last.
    (last,) = [batch for batch, names in batches.items() if str(wednesday) in names]
    assert last in {versions[name, version] for version in committed}


def test_rows_and_files_of_an_ingest_are_told(lake: Lake) -> None:
    lake.deliver("a.jsonl", [{"id": 1, "shop": "north", "amount": 5}, "torn"])
    kept = listening()

    report = lake.pipeline().ingest.run()

    (done,) = [event for event in kept.sent if event["eventType"] == "COMPLETE"]
    assert done["job"]["name"] == "sales.ingest"
    (file,) = done["inputs"]
    assert node(file) == ("file", str(lake.root / "in" / "a.jsonl"))
    statistics = file["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (1, 1)
    assert statistics["size"] == report.size_bytes
    counts = [
        (one["dataset"], one["row_count"], one["rejected_count"])
        for one in file["facets"]["lakebed_rawFile"]["batches"]
    ]
    assert counts[-1] == ("sales", 1, 1)
    assert [dataset for dataset, *_ in counts] == ["sales_quarantine", "sales"]
    outputs = {one["name"].rpartition("/")[2]: one for one in done["outputs"]}
    assert set(outputs) == {"sales", "sales_quarantine"}
    written = outputs["sales"]["outputFacets"]["outputStatistics"]
    sales = lake.repository.open("sales")
    assert written["rowCount"] == report.row_count == 1
    assert written["size"] == sum(file.size_bytes or 0 for file in sales.files())
    fields = outputs["sales"]["facets"]["schema"]["fields"]
    assert [one["name"] for one in fields] == ["id", "shop", "amount"]
    assert outputs["sales"]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert outputs["sales"]["facets"]["version"]["datasetVersion"] == "1"


def test_steps_are_children_of_the_run_and_the_run_is_that_of_the_log(lake: Lake) -> None:
    lake.deliver("a.jsonl", [{"id": 1, "shop": "north", "amount": 5}])
    parent = JobRun(namespace="airflow", job="nightly.load", run_id=str(uuid.uuid4()))
    os.environ["OPENLINEAGE_PARENT_ID"] = f"airflow/nightly.load/{parent.run_id}"
    try:
        kept = listening(namespace="lake")
    finally:
        del os.environ["OPENLINEAGE_PARENT_ID"]

    report = lake.pipeline().run()

    ended = {e["job"]["name"]: e for e in kept.sent if e["eventType"] == "COMPLETE"}
    run = ended["sales"]["run"]
    assert {event["job"]["namespace"] for event in kept.sent} == {"lake"}
    assert run["facets"]["lakebed_run"]["run_id"] == report.run_id
    assert run["facets"]["parent"]["run"]["runId"] == parent.run_id
    assert run["facets"]["parent"]["job"] == {"namespace": "airflow", "name": "nightly.load"}
    for step in report.steps:
        facets = ended[f"sales.{step.step}"]["run"]["facets"]
        assert facets["parent"]["run"]["runId"] == run["runId"], step.step
    publication = ended["sales.publish.delta"]["run"]["facets"]["parent"]
    assert publication["run"]["runId"] == ended["sales.publish"]["run"]["runId"]


def test_a_rewrite_reads_the_version_before_and_an_overwrite_does_not(lake: Lake) -> None:
    sales = lake.repository.create("sales", SALES)
    sales.append([{"id": n, "shop": "north", "amount": n} for n in range(3)])
    kept = listening()

    sales.delete("id = 1")
    sales.overwrite([{"id": 7, "shop": "north", "amount": 1}])

    deleted, overwritten = [event for event in kept.sent if event["eventType"] == "COMPLETE"]
    (earlier,) = deleted["inputs"]
    assert node(earlier) == node(deleted["outputs"][0])
    assert earlier["facets"]["version"]["datasetVersion"] == "1"
    assert deleted["outputs"][0]["facets"]["version"]["datasetVersion"] == "2"
    (batch,) = deleted["outputs"][0]["outputFacets"]["lakebed_batches"]["batches"]
    assert (batch["operation"], batch["deleted_row_count"]) == ("delete", 1)
    assert overwritten["inputs"] == []
    facets = overwritten["outputs"][0]["facets"]
    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


def test_a_transaction_and_a_drop_are_runs(lake: Lake) -> None:
    sales = lake.repository.create("sales", SALES)
    kept = listening()

    with sales.transaction() as transaction:
        transaction.append([{"id": 1, "shop": "north", "amount": 5}])
    lake.repository.drop("sales")

    committed, dropped = [event for event in kept.sent if event["eventType"] == "COMPLETE"]
    assert committed["outputs"][0]["facets"]["version"]["datasetVersion"] == "1"
    change = dropped["outputs"][0]["facets"]["lifecycleStateChange"]
    assert change["lifecycleStateChange"] == "DROP"
    for event in kept.sent:
        validate(event)


def test_a_failure_is_told_and_a_dry_run_and_a_check_are_not(lake: Lake) -> None:
    sales = lake.repository.create("sales", SALES)
    kept = listening()

    with pytest.raises(SchemaMismatchError) as caught:
        sales.append([{"id": 1, "price": 3}])
    sales.append([{"id": 1, "shop": "north", "amount": 5}], dry_run=True)
    sales.publish("delta", check=True)
    sales.arrow()

    assert [event["eventType"] for event in kept.sent] == ["START", "FAIL"]
    error = kept.sent[1]["run"]["facets"]["errorMessage"]
    assert error["programmingLanguage"] == "PYTHON"
    assert error["message"].startswith(caught.value.message)
    assert kept.sent[1]["outputs"] == []


def test_results_of_declared_checks_are_in_the_batch(lake: Lake) -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema=SALES, checks={"positive": lakebed.checks.condition("amount > 0", on_failure="warn")}
    )
    sales = lake.repository.create("sales", descriptor)
    kept = listening()

    sales.append([{"id": 1, "shop": "north", "amount": -5}])

    output = kept.sent[-1]["outputs"][0]
    (batch,) = output["outputFacets"]["lakebed_batches"]["batches"]
    assert batch["checks"] == [{"name": "positive", "outcome": "warned", "count": 1}]
    validate(kept.sent[-1])


def test_a_failure_to_send_changes_nothing_else(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    sales = lake.repository.create("sales", SALES)
    lakebed.telemetry.enable_lineage(OpenLineageClient(transport=Kept(fails=True)))

    with caplog.at_level(logging.WARNING, "lakebed.telemetry"):
        commit = sales.append([{"id": 1, "shop": "north", "amount": 5}])

    assert commit.version == sales.count() == 1
    sent = [record.getMessage() for record in caplog.records]
    assert [text.split(" error=")[0] for text in sent] == [
        "lineage not sent job=sales.append event=START",
        "lineage not sent job=sales.append event=COMPLETE",
    ]
    assert "no route to the server" in sent[0]


def test_the_configuration_of_the_client_decides_without_one(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "events.jsonl"
    config = tmp_path / "openlineage.yml"
    config.write_text(f"transport:\n  type: file\n  log_file_path: {log}\n  append: true\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "nightly")

    lakebed.telemetry.enable_lineage()
    lake.repository.create("sales", SALES)

    sent = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE"]
    assert {event["job"]["namespace"] for event in sent} == {"nightly"}


def test_a_wrong_configuration_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "openlineage.yml"
    config.write_text("transport:\n  type: pigeon\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))

    with pytest.raises(InvalidInputError, match="OpenLineage") as caught:
        lakebed.telemetry.enable_lineage()

    assert "openlineage.yml" in caught.value.hint


def test_the_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client.event_v2", None)

    with pytest.raises(MissingDependencyError, match=r"lakebed\[lineage\]") as caught:
        lakebed.telemetry.enable_lineage()

    assert caught.value.extra == "lineage"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/lake", naming.LocalFileSystem("/data/lake")),
        ("file:///data/my%20lake", naming.LocalFileSystem("/data/my lake")),
        ("s3://bucket/lake/sales", naming.S3("bucket", "lake/sales")),
        ("s3a://bucket/lake/sales", naming.S3("bucket", "lake/sales")),
        ("gs://bucket/lake", naming.GCS("bucket", "lake")),
        ("hdfs://node:8020/lake", naming.HDFS("node", "8020", "/lake")),
        (
            "abfss://box@account.dfs.core.windows.net/lake/sales",
            naming.ABFSS("box", "account", "lake/sales"),
        ),
    ],
)
def test_places_have_the_names_of_openlineage(location: str, expected: Any) -> None:
    assert place_of(location) == (expected.get_namespace(), expected.get_name())


def test_tables_have_the_names_of_openlineage() -> None:
    hive = naming.Hive("meta", "9083", "lake", "sales")
    of_metastore = table_of("hive", "lake.sales", "thrift://meta:9083")

    assert of_metastore == (hive.get_namespace(), hive.get_name())
    assert table_of("hive", "lake.sales") == Named("hive", "lake.sales")
    assert table_of("iceberg", "prod.lake.sales") == Named("iceberg", "prod.lake.sales")
    assert table_of("delta", "s3://b/lake/sales/data") == Named("s3://b", "lake/sales/data")
    assert dataset_of("s3://b/lake/", "sales") == Named("s3://b", "lake/sales")


def test_a_password_in_a_url_is_not_part_of_a_name() -> None:
    assert place_of("s3://key:secret@bucket/lake") == Named("s3://bucket", "lake")
    assert place_of("http://me:secret@host/x") == Named("http://host", "/x")


def test_the_command_line_sends_events_if_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from lakebed.cli import main

    log = tmp_path / "events.jsonl"
    config = tmp_path / "openlineage.yml"
    config.write_text(f"transport:\n  type: file\n  log_file_path: {log}\n  append: true\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
    rows = tmp_path / "rows.csv"
    rows.write_text("n\n1\n")
    command = ["import", str(tmp_path / "lake" / "numbers"), str(rows), "--quiet"]

    assert CliRunner().invoke(main, command).exit_code == 0
    assert not log.exists()

    monkeypatch.setenv("LAKEBED_LINEAGE", "true")
    answer = CliRunner().invoke(main, [*command, "--run", "again"])
    assert answer.exit_code == 0, answer.output
    sent = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE"]
    assert sent[1]["job"]["name"] == "numbers.load"
    assert [node(one) for one in sent[1]["inputs"]] == [("file", str(rows))]

    monkeypatch.setenv("LAKEBED_LINEAGE", "maybe")
    answer = CliRunner().invoke(main, command)
    assert answer.exit_code == 2
    assert "LAKEBED_LINEAGE is 'maybe'" in answer.stderr

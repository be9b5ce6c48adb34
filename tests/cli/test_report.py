"""A lake on one page: it agrees with what the datasets say, and whatever they hold stays text."""

import datetime as dt
import json
import re

import pyarrow as pa
import pytest
from shown_page import ShownPage

import lakebed
from lakebed import by
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.keys import BATCH_IDS, BatchIds
from lakebed.web.charts import axis_labels

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"
SCHEMA = pa.schema([("day", pa.date32()), ("name", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    repository = lakebed.open_repository(str(tmp_path_factory.mktemp("lake")))
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("day")], index=["n"]
    )
    dataset = repository.create("d", descriptor)
    for month in range(4):
        days = [dt.date(2013, 1, 1 + place % 5) for place in range(30)]
        rows = [{"day": day, "name": "x", "n": place} for place, day in enumerate(days)]
        dataset.append(rows, run=f"month-{month}")
    dataset.rerun(
        [{"day": dt.date(2013, 1, 1), "name": HOSTILE, "n": 1}], run="month-0", replace_all=True
    )
    dataset.delete(dataset.where("n = 7"))
    dataset.protections.add(version=2, reason=HOSTILE)
    repository.create("empty", lakebed.DatasetDescriptor(schema=SCHEMA))
    return repository


@pytest.fixture(scope="module")
def page(repository, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "lake.html"
    repository.report(path, view=repository["d"].where("n > 3"))
    return ShownPage(path.read_text(encoding="utf-8"))


def test_every_number_is_what_the_command_line_says(repository, page, cli):
    address = f"{repository.uri.removeprefix('file://')}/d"
    shown = json.loads(cli("show", address, "-o", "json").stdout)
    partitions = json.loads(cli("show", address, "--partitions", "-o", "json").stdout)
    history = json.loads(cli("history", address, "-o", "json").stdout)
    batches = json.loads(cli("batches", address, "-o", "json").stdout)
    files = json.loads(cli("files", address, "-o", "json").stdout)

    (row,) = [row for row in page.rows("Datasets") if row["dataset"] == "d"]
    assert row["rows"] == f"{shown['row_count']:,}"
    assert row["bytes"] == f"{shown['size_bytes']:,}"
    assert int(row["files"]) == shown["file_count"] == len(files)
    assert int(row["version"]) == shown["version"]
    told = page.rows("Partitions")
    assert {
        (each["partition"], int(each["files"]), int(each["rows"]), each["bytes"]) for each in told
    } == {
        (each["partition"], each["file_count"], each["row_count"], f"{each['size_bytes']:,}")
        for each in partitions
    }
    told = page.rows("Commits")
    changed = {commit.version: commit.rows_in_words() for commit in repository["d"].history()}
    assert [(int(each["version"]), each["operation"], each["rows"]) for each in told] == [
        (each["version"], each["operation"], changed[each["version"]]) for each in reversed(history)
    ]
    told = page.tables[f"The newest {len(batches)} of {len(batches)} batches"][1:]
    assert [each[0] for each in told] == [str(each["batch_id"]) for each in reversed(batches)]
    told = page.rows("Data files by size")
    assert sum(int(each["files"]) for each in told) == len(files)
    index = repository["d"].indices.list()[0]
    (told,) = page.rows("Costs and savings")
    assert (told["column"], told["bytes"]) == ("n", f"{index.size_bytes:,}")


def test_plan_says_what_explain_says(repository, page):
    explanation = repository["d"].where("n > 3").plan().explain()

    told = {row["outcome"]: int(row["files"]) for row in page.rows("Files")}

    assert told["kept"] == explanation.kept
    assert told["dropped by statistics"] == explanation.dropped_by_statistics
    assert sum(told.values()) == explanation.file_count


def test_whatever_a_lake_holds_stays_text(page):
    assert page.elements <= {
        *("html", "head", "meta", "title", "style", "body", "main", "header", "section"),
        *("h1", "h2", "h3", "p", "a", "ul", "li", "code", "pre", "span", "div", "dl", "dt", "dd"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"),
        *("svg", "rect", "circle", "line", "text", "nav"),
    }
    assert page.rows("Protected from cleanup")[0]["reason"] == HOSTILE


def test_page_asks_nobody_for_anything_and_its_links_lead_somewhere(page):
    assert page.targets
    assert all(target.startswith("#") for target in page.targets)
    assert {target[1:] for target in page.targets} <= page.ids


def test_long_and_hidden_letters_are_cut_and_shown(tmp_path):
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))
    dataset.append([{"day": None, "name": "a", "n": 1}], run="\u202e" + "x" * 900)

    text = repository.report(tmp_path / "lake.html").read_text(encoding="utf-8")

    assert "\u202e" not in text
    assert "\\u202exxx" in text
    assert "x" * 200 not in text


def test_dataset_that_cannot_be_read_is_told_beside_the_others(repository, tmp_path):
    copy = tmp_path / "lake"
    import shutil

    shutil.copytree(repository.uri.removeprefix("file://"), copy)
    for segment in (copy / "d" / "history").iterdir():
        segment.write_bytes(b"damaged")
    (copy / "beheaded.by-dataset-metadata.json").write_text("{")

    text = lakebed.open_repository(str(copy)).report(tmp_path / "x.html").read_text("utf-8")

    page = ShownPage(text)
    assert [row["dataset"] for row in page.rows("Not read")] == ["beheaded", "d"]
    assert [row["dataset"] for row in page.rows("Datasets")] == ["empty"]
    with pytest.raises(DatasetNotFoundError, match="'missing' not found"):
        lakebed.open_repository(str(copy)).report(tmp_path / "x.html", names=["empty", "missing"])


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_dataset_whose_head_is_damaged_is_told_beside_the_others(tmp_path, cli, content):
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    for name in ("a", "b"):
        repository.create(name, lakebed.DatasetDescriptor(schema=SCHEMA))
    (tmp_path / "lake" / "a.by-dataset-metadata.json").write_text(content)

    result = cli("report", tmp_path / "lake", "--file", tmp_path / "x.html")

    page = ShownPage((tmp_path / "x.html").read_text("utf-8"))
    assert [row["dataset"] for row in page.rows("Not read")] == ["a"]
    assert [row["dataset"] for row in page.rows("Datasets")] == ["b"]
    assert "dataset=a" in result.stderr


def test_dataset_that_is_dropped_meanwhile_is_told_beside_the_others(tmp_path):
    repository = lakebed.open_repository("memory://dropped-meanwhile")
    for name in ("a", "b"):
        repository.create(name, lakebed.DatasetDescriptor(schema=SCHEMA))

    def drop(progress):
        if repository.exists("b"):
            repository.drop("b")

    text = repository.report(tmp_path / "x.html", on_progress=drop).read_text("utf-8")

    page = ShownPage(text)
    assert [row["dataset"] for row in page.rows("Not read")] == ["b"]
    assert [row["dataset"] for row in page.rows("Datasets")] == ["a"]


@pytest.fixture
def nested(tmp_path):
    """A lake with datasets of one name in itself, in a namespace and in a namespace of that."""
    lake = lakebed.open_repository(tmp_path / "nested")
    homes = (lake, lake.namespaces.create("sales"), lake["sales"].namespaces.create("eu"))
    for number, home in enumerate(homes, 1):
        home.write("orders", pa.table({"n": range(number)}))
        home["orders"].protections.add(version=1, reason="kept")
    return lake


def test_datasets_of_namespaces_are_on_the_page_by_their_paths(nested, cli, tmp_path):
    result = cli.json("report", nested.uri, "--file", tmp_path / "x.html", "--rows", 5)

    page = ShownPage((tmp_path / "x.html").read_text("utf-8"))
    rows = {row["dataset"]: row["rows"] for row in page.rows("Datasets")}
    assert rows == {"orders": "1", "sales/orders": "2", "sales/eu/orders": "3"}
    assert result["dataset_count"] == 3
    assert {f"#dataset-{name}" for name in rows} <= set(page.links)
    assert set(page.links) <= {f"#{anchor}" for anchor in page.ids}


def test_one_dataset_of_a_namespace_is_reported_by_its_path(nested, tmp_path):
    path = nested.report(tmp_path / "x.html", names="sales/orders")

    page = ShownPage(path.read_text("utf-8"))
    assert [row["rows"] for row in page.rows("Datasets")] == ["2"]
    with pytest.raises(DatasetNotFoundError, match="'order' not found"):
        nested.report(tmp_path / "y.html", names=["orders", "sales/order"])


def test_namespace_with_a_damaged_marker_is_told_beside_the_others(nested, cli, tmp_path):
    (tmp_path / "nested" / "sales" / "eu" / "_lakebed.namespace.json").write_bytes(b"[]")

    cli("report", nested.uri, "--file", tmp_path / "x.html")

    page = ShownPage((tmp_path / "x.html").read_text("utf-8"))
    assert [row["dataset"] for row in page.rows("Datasets")] == ["orders", "sales/orders"]
    (unread,) = page.rows("Not read")
    assert unread["dataset"] == "sales/eu/"
    assert "_lakebed.namespace.json" in unread["reason"]


def test_name_that_is_given_must_be_of_a_dataset(repository, tmp_path):
    with pytest.raises(DatasetNotFoundError, match="'x' not found"):
        repository.report(tmp_path / "x.html", names=["d", "x"])

    assert not (tmp_path / "x.html").exists()


def test_lake_of_many_datasets_tells_the_largest_in_detail_and_all_in_a_table(tmp_path):
    repository = lakebed.open_repository("memory://many-datasets")
    for number in range(45):
        dataset = repository.create(f"d{number}", lakebed.DatasetDescriptor(schema=SCHEMA))
        if number:
            dataset.append([{"day": None, "name": "a" * number, "n": n} for n in range(number)])

    page = ShownPage(repository.report(tmp_path / "x.html").read_text("utf-8"))

    assert len(page.rows("Datasets")) == 45
    assert len({name for name in page.ids if name.startswith("dataset-")}) == 40
    assert "dataset-d44" in page.ids
    assert "dataset-d0" not in page.ids


@pytest.mark.parametrize("form", list(BatchIds))
def test_heat_map_tells_when_batches_began_whatever_form_their_ids_have(tmp_path, form):
    repository = lakebed.open_repository(f"memory://heat-map-{form}")
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, properties={BATCH_IDS: str(form)})
    dataset = repository.create("d", descriptor)
    moments = [dt.datetime(2013, month, 1, 12, tzinfo=dt.UTC) for month in (1, 2, 12)]
    for moment in moments:
        options = lakebed.CommitOptions(begun_at=moment)
        dataset.with_options(commit=options).append([{"day": None, "name": "a", "n": 1}])

    page = ShownPage(repository.report(tmp_path / "x.html").read_text("utf-8"))

    told = [row["from"] for row in page.rows("Live bytes by time of writing")]
    assert {row["partition"] for row in page.rows("Live bytes by time of writing")} == {"(all)"}
    assert told == ["2013-01-01 12:00", "2013-12-01 12:00"]


def test_page_that_cannot_be_written_leaves_the_old_one_and_says_why(repository, tmp_path):
    with pytest.raises(InvalidInputError, match="No such file"):
        repository.report(tmp_path / "missing" / "lake.html")
    (tmp_path / "file").write_text("text")
    with pytest.raises(InvalidInputError, match="Not a directory"):
        repository.report(tmp_path / "file" / "lake.html")


@pytest.mark.parametrize("what", ["", "/d"])
def test_command_writes_the_page_of_a_lake_or_of_one_dataset(repository, cli, tmp_path, what):
    path = tmp_path / "lake.html"
    location = repository.uri.removeprefix("file://") + what

    answer = cli("report", location, "--file", path)

    assert answer.stdout.strip() == str(path)
    names = [row["dataset"] for row in ShownPage(path.read_text("utf-8")).rows("Datasets")]
    assert names == (["d"] if what else ["d", "empty"])


def test_command_takes_a_predicate_of_one_dataset_only(repository, cli, tmp_path):
    location = repository.uri.removeprefix("file://")

    answer = cli("report", location, "--where", "n > 3", "--file", tmp_path / "x.html", exit_code=2)
    assert "LOCATION/NAME" in answer.stderr
    cli("report", f"{location}/d", "--where", "n > 3", "--file", tmp_path / "x.html")

    assert "Plan of d" in re.sub("<[^>]*>", "", (tmp_path / "x.html").read_text("utf-8"))


def test_command_tells_a_location_where_nothing_is(cli, tmp_path):
    assert (
        "neither a repository nor a dataset"
        in cli("report", tmp_path / "no" / "lake", exit_code=3).stderr
    )


def test_command_says_which_dataset_may_be_meant(repository, cli):
    location = repository.uri.removeprefix("file://")

    assert "Did you mean 'empty'?" in cli("report", f"{location}/emty", exit_code=3).stderr


def test_result_names_the_page_and_a_file_is_not_taken_for_its_form(
    repository, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    location = repository.uri.removeprefix("file://")

    told = cli.json("report", location, "--file", "page.html")
    error = cli("report", location, "-o", "other page.html", exit_code=2).stderr

    assert told["file"] == "page.html"
    assert told["dataset_count"] == len(repository.list())
    assert "give it as --file 'other page.html'" in error
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_contents_lead_to_each_part_and_what_needs_attention_comes_first(repository, page):
    assert page.targets[:2] == ["#attention", "#datasets"]
    assert {"#dataset-d", "#dataset-empty", "#plan"} <= {*page.targets}
    captions = list(page.tables)
    assert captions.index("Needs attention") < captions.index("Datasets")


def test_plan_follows_its_dataset(repository, tmp_path):
    view = repository["d"].where("n > 3")

    text = repository.report(tmp_path / "x.html", view=view).read_text("utf-8")

    places = [text.index(f'id="{anchor}"') for anchor in ("dataset-d", "plan", "dataset-empty")]
    assert places == sorted(places)


def test_lake_is_called_by_its_name_and_tells_its_uri(tmp_path):
    repository = lakebed.open_repository(str(tmp_path / "my-lake"))
    repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))

    text = repository.report(tmp_path / "x.html").read_text("utf-8")

    assert "<title>Lakebed: my-lake</title>" in text
    assert "<h1>my-lake</h1>" in text
    assert f"<code>{repository.uri}</code>" in text


def test_rows_are_shown_on_request_only(repository, cli, tmp_path):
    location = repository.uri.removeprefix("file://")

    cli("report", location, "--rows", "20", "--file", tmp_path / "x.html")
    cli("report", location, "--file", tmp_path / "without.html")

    page = ShownPage((tmp_path / "x.html").read_text("utf-8"))
    without = ShownPage((tmp_path / "without.html").read_text("utf-8"))
    dataset = repository["d"]
    rows = page.rows(f"First rows of d: 20 of {dataset.count()} rows")
    assert [(each["n"], each["name"]) for each in rows] == [
        (str(each["n"]), each["name"]) for each in dataset.head(20).to_pylist()
    ]
    assert page.tables["First rows of empty: 0 rows"][1] == ["none"]
    assert not [caption for caption in without.tables if caption.startswith("First rows")]


@pytest.mark.parametrize("count", [-1, 201])
def test_number_of_rows_has_a_limit(repository, cli, tmp_path, count):
    location = repository.uri.removeprefix("file://")

    cli("report", location, "--rows", str(count), "--file", tmp_path / "x.html", exit_code=2)
    with pytest.raises(InvalidInputError, match="1 to 200"):
        repository.report(tmp_path / "x.html", rows=count)

    assert not (tmp_path / "x.html").exists()


def test_rows_that_cannot_be_read_are_told_beside_the_rest(tmp_path):
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))
    dataset.append([{"day": None, "name": "a", "n": 1}])
    (tmp_path / "lake" / dataset.files()[0].key).unlink()

    page = ShownPage(repository.report(tmp_path / "x.html", rows=5).read_text("utf-8"))

    assert "The rows cannot be read: " in page.text
    assert page.rows("Datasets")[0]["rows"] == "1"


def small_files(days, per_day):
    repository = lakebed.open_repository(f"memory://small-files-{days}-{per_day}")
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("day")])
    dataset = repository.create("d", descriptor)
    first = dt.date(2013, 1, 1)
    for _ in range(per_day):
        dataset.append(
            [{"day": first + dt.timedelta(days=n), "name": "x", "n": n} for n in range(days)]
        )
    return repository


@pytest.mark.parametrize(
    ("days", "per_day", "finding", "command"),
    [
        (123, 1, "123 small files of about", "lakebed show"),
        (30, 4, "120 small files of about", "lakebed compact"),
        (30, 1, "", ""),
    ],
)
def test_many_small_files_need_attention_even_if_no_partition_has_many(
    tmp_path, days, per_day, finding, command
):
    page = ShownPage(
        small_files(days, per_day).report(tmp_path / "x.html").read_text(encoding="utf-8")
    )

    told = page.tables["Needs attention"][1]
    if not finding:
        assert told == ["none"]
        return
    assert told[0] == "d"
    assert told[1].startswith(finding)
    assert told[2].startswith(command)


def test_both_ends_of_a_time_axis_have_labels_that_differ():
    noon = dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC)
    steps = ["days=1", "minutes=1", "seconds=1", "milliseconds=1", "microseconds=1"]
    for step in steps:
        unit, count = step.split("=")
        first, last = axis_labels(noon, noon + dt.timedelta(**{unit: int(count)}))
        assert first != last
        assert len(first) == len(last)


def test_timeline_of_one_moment_has_one_label(tmp_path):
    repository = lakebed.open_repository("memory://one-moment")
    repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))

    text = repository.report(tmp_path / "x.html").read_text("utf-8")

    assert len(re.findall(r"<text[^>]*>\d{4}-\d\d-\d\d \d\d:\d\d[^<]*UTC</text>", text)) == 1

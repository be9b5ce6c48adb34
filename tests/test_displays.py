"""What a prompt and a notebook show: short, whole words, escaped, without asking the store."""

import html.parser
import pickle

import pyarrow as pa
import pytest
from inside import store_of

import lakebed
from lakebed import by
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.testing import CountingStore

HOSTILE = "<script>alert('x')</script>"
RTL = "\u202eevil"


class Balanced(html.parser.HTMLParser):
    """Counts elements; text is text, so that no element of ours is ever `script`."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def store():
    return CountingStore(lakebed.open_repository("memory://displays").store)


@pytest.fixture(scope="module")
def dataset(store):
    repository = lakebed.Repository(store)
    schema = pa.schema([("name", pa.string()), ("n", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(
        schema=schema, partition_by=[by.identity("name")], properties={"owner": HOSTILE}
    )
    dataset = repository.create("d", descriptor)
    dataset.append([{"name": HOSTILE, "n": 1}, {"name": "x" * 150, "n": 2}], run=HOSTILE)
    dataset.append([{"name": f"{RTL}{n}", "n": n} for n in range(40)], run="many")
    for n in range(30):
        dataset.append([{"name": "a", "n": n}])
    dataset.protections.add(version=1, reason=HOSTILE * 20)
    dataset.staged.add([{"name": "a", "n": 1}], run=HOSTILE)
    return dataset


MANY_VALUES = pa.schema([("name", pa.string()), ("n", pa.int64())])
LONG_LIST = [f"{HOSTILE}{n}" for n in range(3_000)]

DISPLAYS = {
    "repository": lambda dataset: lakebed.Repository(store_of(dataset)),
    "dataset": lambda dataset: dataset,
    "view": lambda dataset: dataset.kite.with_("name", HOSTILE),
    "wide view": lambda dataset: dataset.where([[("n", "in", list(range(5_000)))]]),
    "plan": lambda dataset: dataset.where([[("n", "in", list(range(5_000)))]]).plan(),
    "descriptor": lambda dataset: dataset.descriptor,
    "descriptor of a long list": lambda _: lakebed.DatasetDescriptor(
        schema=MANY_VALUES, partition_by=[by.dimension("name", LONG_LIST)]
    ),
    "strategy of a long list": lambda _: lakebed.PartitionStrategy(
        (by.dimension("name", LONG_LIST),)
    ),
    "schema": lambda dataset: dataset.descriptor.schema,
    "wide schema": lambda _: Schema(
        fields=tuple(Field(name=f"{HOSTILE}{n}", type=Primitive(Kind.LONG)) for n in range(2_000))
    ),
    "strategy": lambda dataset: dataset.descriptor.partition_by,
    "commit": lambda dataset: dataset.history()[1],
    "history": lambda dataset: dataset.history(),
    "part of the history": lambda dataset: dataset.history()[2:5],
    "batches": lambda dataset: dataset.batches(),
    "batch": lambda dataset: dataset.batches()[0],
    "partitions": lambda dataset: dataset.inspect.partitions(),
    "files": lambda dataset: dataset.files(),
    "files of a view": lambda dataset: dataset.where("n < 3").files(),
    "schemas": lambda dataset: dataset.inspect.schemas(),
    "protections": lambda dataset: dataset.protections.list(),
    "staged": lambda dataset: dataset.staged.list(),
    "staged batch": lambda dataset: dataset.staged.list()[0],
    "diff": lambda dataset: dataset.diff(1, 2),
    "check": lambda dataset: dataset.check(),
    "cleanup": lambda dataset: dataset.cleanup("0s", dry_run=True),
    "compaction": lambda dataset: dataset.compact(dry_run=True),
}


@pytest.mark.parametrize("kind", DISPLAYS)
def test_display_is_short_escaped_and_costs_nothing(dataset, store, kind):
    thing = DISPLAYS[kind](dataset)
    store.reset()

    text, page = repr(thing), thing._repr_html_()

    assert store.reset().total == 0
    assert len(text.splitlines()) <= 20
    assert len(text) <= 4_000
    assert text.replace("\n", "").isprintable()
    assert len(page) <= 40_000
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.seen <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def test_explanation_of_a_long_predicate_is_short_at_a_prompt(dataset):
    explanation = dataset.where([[("n", "in", list(range(50_000)))]]).plan().explain()

    text = repr(explanation)

    assert text.startswith("plan of 'd' version")
    assert len(text.splitlines()) <= 20
    assert len(text) <= 4_000
    assert "more characters" in text
    assert len(explanation.predicate) > 100_000


def test_ingest_of_many_files_is_told_in_short(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(60):
        (tmp_path / "in" / f"{number}.csv").write_text(f"n\nx\n{number}\n")
    into = f"memory://shown-ingest/{tmp_path.name}"
    repository = lakebed.open_repository("memory://shown-ingest")
    schema = pa.schema([("n", pa.int64())])
    dataset = repository.create(tmp_path.name, lakebed.DatasetDescriptor(schema=schema))
    source = lakebed.FromFiles(paths=str(tmp_path / "in"))
    ingest = lakebed.Ingest(name="numbers", into=into, source=source, max_rejects=0.5)

    check, report, sources = repr(ingest.check()), repr(ingest.run()), repr(dataset.sources.list())

    assert check == "<IngestCheck of csv files: 60 new, 0 changed, 0 unchanged, 0 left out>"
    assert report == (
        "<IngestReport of 'numbers': 60 rows of 60 files, 60 rejects; 0 files left out>"
    )
    assert "60 in all" in sources
    assert len(sources.splitlines()) <= 20


def test_listing_is_a_tuple_like_any_other(dataset):
    history = dataset.history()

    assert history == tuple(history)
    assert isinstance(history, tuple)
    assert history[:3] == tuple(history)[:3]
    assert [commit.version for commit in history[1:3]] == [1, 2]
    assert pickle.loads(pickle.dumps(history)) == history
    assert hash(history) == hash(tuple(history))
    assert repr(history[:0]) == "()"


def test_listing_prints_its_items_as_lines_under_a_header(dataset):
    lines = repr(dataset.history()[:3]).splitlines()

    assert lines[0].split()[:2] == ["version", "operation"]
    assert set(lines[1]) == {"-", " "}
    assert [line.split()[:2] for line in lines[2:]] == [
        ["0", "create"],
        ["1", "append"],
        ["2", "append"],
    ]


def test_listing_of_many_shows_the_first_and_the_last_and_how_many_there_are(dataset):
    history = dataset.history()

    lines = repr(history).splitlines()

    assert lines[2].split()[0] == "0"
    assert lines[-1].split()[0] == str(history[-1].version)
    assert any(f"{len(history)} in all" in line for line in lines)

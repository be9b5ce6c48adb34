"""Pictures by matplotlib show what the dataset says."""

import sys

import pyarrow as pa
import pytest

import lakebed
from lakebed import by, plots
from lakebed.errors import LakebedError, MissingDependencyError
from lakebed.store.cache import PROCESS_CACHE

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib.*")


@pytest.fixture(scope="module")
def dataset():
    schema = pa.schema([("name", pa.string()), ("n", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=[by.identity("name")])
    dataset = lakebed.open_repository("memory://plots").create("d", descriptor)
    for n in range(3):
        dataset.append([{"name": "$a$", "n": n}, {"name": "b" * 90, "n": n}])
    dataset.overwrite([{"name": "b" * 90, "n": 1}])
    return dataset


def test_histogram_counts_each_file_once(dataset):
    axes = dataset.inspect.plot.file_sizes()

    assert sum(bar.get_height() for bar in axes.containers[0]) == len(dataset.files()) == 4


def test_field_holds_the_bytes_of_each_partition_and_batch(dataset):
    axes = dataset.inspect.plot.partitions()

    (image,) = axes.images
    assert image.get_array().sum() == sum(file.size_bytes for file in dataset.files())
    assert image.get_array().shape == (2, 4)
    axes.figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(labels) == ["name=%24a%24", "…" + "b" * 40]


def test_commits_stand_on_the_lines_of_their_operations(dataset):
    axes = dataset.inspect.plot.commits()

    counts = [len(points.get_offsets()) for points in axes.collections]
    assert counts == [1, 3, 1]
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "create",
        "append",
        "overwrite",
    ]


def test_axes_say_what_they_measure_and_in_which_unit(dataset):
    sizes, field, commits = (
        getattr(dataset.inspect.plot, name)() for name in ("file_sizes", "partitions", "commits")
    )

    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in (sizes, field, commits)]
    assert labels == [
        ("size", "data files"),
        ("batch, oldest first", "partition"),
        ("committed at (UTC)", "operation"),
    ]
    assert "1 MiB" in [label.get_text() for label in sizes.get_xticklabels()]
    assert [axes.get_ylabel() for axes in field.figure.axes] == ["partition", "bytes"]
    assert commits.get_title() == "Commits; the largest has 2 rows"


def test_picture_reads_what_it_shows_and_no_more():
    repository = lakebed.open_repository("memory://plots-lazy")
    schema = pa.schema([("n", pa.int64())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    dataset.append([{"n": 1}])
    pictures = dataset.inspect.plot
    repository.store.delete([info.key for info in repository.store.list("d/history/")])
    PROCESS_CACHE.clear()

    pictures.file_sizes()
    pictures.partitions()

    with pytest.raises(LakebedError):
        pictures.commits()


def test_axes_that_are_given_are_drawn_on(dataset):
    from matplotlib.figure import Figure

    given = Figure().subplots(3)

    drawn = [
        plots.file_sizes(dataset.files(), given[0]),
        plots.partitions(dataset.files(), given[1]),
        plots.commits(dataset.history(), given[2]),
    ]

    assert drawn == list(given)


@pytest.mark.parametrize("name", ["file_sizes", "partitions", "commits"])
def test_dataset_without_files_can_be_drawn(name):
    schema = pa.schema([("n", pa.int64())])
    empty = lakebed.open_repository(f"memory://plots-{name}").create(
        "d", lakebed.DatasetDescriptor(schema=schema)
    )

    axes = getattr(empty.inspect.plot, name)()

    axes.figure.canvas.draw()


def test_matplotlib_that_is_missing_is_named_with_its_extra(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(MissingDependencyError) as caught:
        dataset.inspect.plot.commits()

    assert caught.value.extra == "plot"
    assert "lakebed[plot]" in caught.value.hint

"""Repositories: creating, opening, listing and dropping datasets."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from heads import head_key

import lakebed
from lakebed import DatasetDescriptor, Repository
from lakebed.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    PartitionSpecError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.model.layout import TABLE, schema_key
from lakebed.state import kartothek
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
DESCRIPTOR = DatasetDescriptor(schema=SCHEMA, partition_by="k")


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def repo(store: Store) -> Repository:
    return Repository(store)


def keys(store: Store) -> list[str]:
    return sorted(info.key for info in store.list(""))


def test_new_dataset_is_empty_and_at_version_0(repo: Repository) -> None:
    dataset = repo.create("flights", DESCRIPTOR)

    assert (dataset.version, dataset.count(), dataset.inspect.partitions()) == (0, 0, ())
    assert repo.exists("flights")
    assert repo.open("flights").descriptor == DESCRIPTOR


@pytest.mark.parametrize(
    ("head_format", "suffix"), [("json", "json"), ("msgpack.zstd", "msgpack.zstd")]
)
def test_dataset_lies_where_kartothek_looks(
    repo: Repository, store: Store, head_format, suffix: str
) -> None:
    repo.create("flights", DESCRIPTOR, head_format=head_format)

    assert f"flights.by-dataset-metadata.{suffix}" in keys(store)
    assert "flights/data/_common_metadata" in keys(store)
    assert repo.open("flights").version == 0


def test_taken_name_is_an_error(repo: Repository) -> None:
    repo.create("flights", DESCRIPTOR).append([{"k": "a", "n": 1}])

    with pytest.raises(DatasetExistsError, match="'flights' exists in memory://"):
        repo.create("flights", DESCRIPTOR)

    assert repo.open("flights").count() == 1


@pytest.mark.parametrize("name", ["entity", "com.example.Flight", "3x"])
def test_equal_dataset_is_opened_on_request(repo: Repository, name: str) -> None:
    fields = [{"name": "n", "type": ["null", "long"]}]
    schema = {"type": "record", "name": name, "fields": fields}
    repo.create("flights", DatasetDescriptor(schema=schema)).append([{"n": 1}])

    dataset = repo.create("flights", DatasetDescriptor(schema=schema), if_exists="open")

    assert dataset.count() == 1


def test_dataset_with_another_descriptor_is_not_opened(repo: Repository) -> None:
    repo.create("flights", DESCRIPTOR)

    with pytest.raises(DatasetExistsError, match="another descriptor"):
        repo.create("flights", DatasetDescriptor(schema=SCHEMA), if_exists="open")


class OvertakingStore(FailingStore):
    """Lets somebody else create the dataset just before our head is put."""

    def __init__(self, inner: Store, descriptor: DatasetDescriptor) -> None:
        super().__init__(inner, fail_on="get", nth=10**9)
        self._other = descriptor

    def _create(self, key: str, data: memoryview) -> str:
        if "metadata" in key:
            Repository(self.inner).create("flights", self._other)
        return super()._create(key, data)


def test_lost_race_leaves_the_winner_as_it_is(store: Store) -> None:
    winner = DatasetDescriptor(schema=pa.schema([("other", pa.string())]))
    repo = Repository(OvertakingStore(store, winner))

    with pytest.raises(DatasetExistsError):
        repo.create("flights", DESCRIPTOR)

    schema_file = store.get(schema_key("flights", TABLE)).data
    assert schema_file == kartothek.encode_schema(winner.schema, winner.partition_types)
    assert Repository(store).open("flights").descriptor == winner
    assert len([key for key in keys(store) if "/history/" in key]) == 1


@pytest.mark.parametrize(
    "arguments", [{"if_exists": "replace"}, {"if_exists": True}, {"head_format": "yaml"}]
)
def test_choice_that_is_none_is_refused(repo: Repository, store: Store, arguments: dict) -> None:
    with pytest.raises(InvalidInputError, match="Give"):
        repo.create("flights", DESCRIPTOR, **arguments)

    assert keys(store) == []


ILLEGAL = ["", "a.b", "a/b", "..", "../a", "/a", "a b", "flights\n", "ä", "a\0", "x" * 201]


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("verb", ["create", "open", "exists", "drop"])
def test_illegal_name_is_refused_by_every_verb(
    repo: Repository, store: Store, verb: str, name: str
) -> None:
    arguments = [DESCRIPTOR] if verb == "create" else []

    with pytest.raises(InvalidNameError) as caught:
        getattr(repo, verb)(name, *arguments)

    assert caught.value.hint
    assert keys(store) == []


def test_missing_partition_source_is_refused_before_anything_is_written(
    repo: Repository, store: Store
) -> None:
    with pytest.raises(PartitionSpecError, match="Did you mean 'k'"):
        repo.create("flights", DatasetDescriptor(schema=SCHEMA, partition_by="hash(kk, 3)"))

    assert keys(store) == []


@pytest.mark.parametrize("key", ["../x", "/x", "a/../../x", "a//x", "."])
def test_path_that_leaves_the_root_is_refused(tmp_path: Path, key: str) -> None:
    repo = lakebed.open_repository(tmp_path / "lake")

    for access in (repo.store.get, lambda key: repo.store.put(key, b"x")):
        with pytest.raises(InvalidNameError, match="not valid"):
            access(key)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_missing_dataset_names_the_nearest_or_all(repo: Repository) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"'flights' not found in memory:.*is empty"):
        repo.open("flights")
    repo.create("flights", DESCRIPTOR)
    with pytest.raises(DatasetNotFoundError, match=r"Did you mean 'flights'\?"):
        repo.open("fligths")
    with pytest.raises(DatasetNotFoundError, match="Datasets are: flights"):
        repo.open("zzz")
    assert not repo.exists("zzz")


def test_list_is_sorted_and_knows_both_heads(repo: Repository, store: Store) -> None:
    repo.create("b", DESCRIPTOR)
    repo.create("a", DESCRIPTOR, head_format="msgpack.zstd")
    store.put("notes.txt", b"x")
    store.put("sub/c.by-dataset-metadata.json", b"{}")

    assert repo.list() == ["a", "b"]


def test_dropped_dataset_leaves_nothing_and_its_neighbours_alone(
    repo: Repository, store: Store
) -> None:
    for name in ("flight", "flights", "flights-2"):
        repo.create(name, DESCRIPTOR).append([{"k": "a", "n": 1}])

    repo.drop("flights")

    assert repo.list() == ["flight", "flights-2"]
    assert not [key for key in keys(store) if key.startswith(("flights/", "flights."))]
    assert repo.open("flights-2").count() == repo.open("flight").count() == 1
    with pytest.raises(DatasetNotFoundError):
        repo.drop("flights")


def test_dataset_behind_a_link_is_read_and_written_and_not_dropped(tmp_path: Path) -> None:
    repo = Repository(open_store(tmp_path / "lake", storage_options={"links": "true"}))
    repo.create("flights", DESCRIPTOR)
    directory, outside = tmp_path / "lake" / "flights", tmp_path / "outside"
    directory.rename(outside)
    directory.symlink_to(outside)
    repo.open("flights").append([{"k": "a", "n": 1}])
    assert repo.open("flights").count() == 1
    before = sorted(outside.rglob("*"))

    with pytest.raises(StorageError, match="is a symbolic link"):
        repo.drop("flights")

    assert repo.exists("flights")
    assert sorted(outside.rglob("*")) == before


def test_dropped_name_can_be_used_again(repo: Repository) -> None:
    repo.create("flights", DESCRIPTOR).append([{"k": "a", "n": 1}])
    repo.drop("flights")

    again = repo.create("flights", DatasetDescriptor(schema=SCHEMA))

    assert (again.version, again.count()) == (0, 0)


def test_store_that_cannot_swap_takes_no_dataset(store: Store) -> None:
    reading = FailingStore(store, fail_on="get", nth=10**9)
    reading.supports_compare_and_swap = False

    with pytest.raises(ReadOnlyError):
        Repository(reading).create("flights", DESCRIPTOR)

    assert keys(store) == []


def test_repository_says_where_it_is(repo: Repository, store: Store) -> None:
    assert (repo.uri, repo.store) == (store.uri, store)
    assert repr(repo) == f"<Repository {store.uri}>"


# The package


def test_exports_are_sorted_and_there() -> None:
    assert lakebed.__all__ == sorted(lakebed.__all__)
    for name in lakebed.__all__:
        assert getattr(lakebed, name)


def test_everything_public_in_the_package_is_exported() -> None:
    public = {
        name
        for name, value in vars(lakebed).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("lakebed.")
    }

    assert public <= set(lakebed.__all__)


@pytest.mark.parametrize("given", ["n long", 5, [{"n": 1}]])
def test_dataset_is_not_created_from_what_has_no_schema(given: object) -> None:
    repository = lakebed.open_repository("memory://no-schema")

    with pytest.raises(SchemaMismatchError, match="schema"):
        repository.create("numbers", given)

    assert repository.list() == []


def test_file_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n\n1\n")

    with pytest.raises(InvalidInputError, match="is a file"):
        lakebed.open_repository(tmp_path / "rows.csv")


def test_copy_of_a_head_that_no_dataset_can_be_called_is_no_dataset(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    repository.create("d", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    head = (tmp_path / head_key("d")).read_bytes()
    for name in ("d copy", "d (1)", "", "x" * 201):
        (tmp_path / head_key(name)).write_bytes(head)

    assert repository.list() == ["d"]


def test_name_of_a_repository_is_told_from_one_that_nothing_has(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    lakebed.open_repository(tmp_path / "lake").create("d", lakebed.DatasetDescriptor(schema=schema))

    with pytest.raises(DatasetNotFoundError, match="repository itself, with 1 dataset") as caught:
        lakebed.open_repository(tmp_path).open("lake")

    inner = caught.value.hint.rpartition("such as ")[2].removesuffix(".")
    assert lakebed.open_uri(f"dataset:{inner}").name == "d"


@pytest.fixture(params=["directory", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a repository `lake` holds a dataset `t`."""
    root = str(tmp_path) if request.param == "directory" else f"memory://{uuid.uuid4().hex}"
    lakebed.open_repository(f"{root}/lake").create("t", DESCRIPTOR).append([{"k": "a", "n": 1}])
    return root


def test_dataset_opened_as_a_repository_is_named(root: str) -> None:
    opened = lakebed.open_repository(f"{root}/lake/t")

    for look in (opened.list, lambda: len(opened), lambda: list(opened)):
        with pytest.raises(
            InvalidInputError,
            match=r"lake/t is a dataset, not a repository. Open 't' in the reposi",
        ):
            look()
    with pytest.raises(DatasetNotFoundError, match=r"lake/t is a dataset itself. Open 't' in"):
        opened.open("x")


def test_no_dataset_is_created_in_the_directory_of_another_one(root: str) -> None:
    opened = lakebed.open_repository(f"{root}/lake/t")
    before = keys(opened.store)

    with pytest.raises(InvalidInputError, match=r"cannot be created in .*, which is a dataset"):
        opened.create("x", DESCRIPTOR)

    assert keys(opened.store) == before


def test_no_dataset_is_created_over_a_repository_whose_datasets_its_drop_would_delete(
    root: str,
) -> None:
    above = lakebed.open_repository(root)

    with pytest.raises(InvalidInputError, match="'lake' is a repository, with 1 dataset"):
        above.create("lake", DESCRIPTOR)

    assert above.list() == []
    assert lakebed.open_repository(f"{root}/lake").open("t").count() == 1


def test_dataset_that_lies_over_a_repository_is_not_dropped(root: str) -> None:
    aside = lakebed.open_repository(f"{root}/aside")
    aside.create("lake", DESCRIPTOR).append([{"k": "b", "n": 2}])
    above = lakebed.open_repository(root)
    for info in aside.store.list(""):  # as an earlier release let it be created
        above.store.put(info.key, aside.store.get(info.key).data)

    with pytest.raises(InvalidInputError, match=r"also holds t, which would be deleted with it"):
        above.drop("lake")

    assert above.open("lake").count() == 1
    assert lakebed.open_repository(f"{root}/lake").open("t").count() == 1


def test_error_does_not_name_all_of_many_datasets() -> None:
    repository = lakebed.open_repository("memory://error-of-many")
    for number in range(30):
        repository.create(
            f"d{number}", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
        )

    with pytest.raises(DatasetNotFoundError, match=r"Datasets are: d0, .* … and 10 more"):
        repository.open("zzz")


def test_missing_directory_is_told_from_an_empty_repository(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(DatasetNotFoundError, match="directory does not exist"):
        lakebed.open_repository(tmp_path / "mistyped").open("flights")
    with pytest.raises(DatasetNotFoundError, match="The repository is empty"):
        lakebed.open_repository(tmp_path / "empty").open("flights")

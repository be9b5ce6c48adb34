"""Names of folders and objects of a dataset, and that one module alone spells them."""

import ast
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import lakebed
from lakebed.model import layout
from lakebed.model.layout import TABLE, Folder
from lakebed.store.segments import Segment

SOURCE = Path(lakebed.__file__).parent
# What says where else such a text stands, and why it is no name of an object of a dataset.
ELSEWHERE = {
    "archive/http": "paths of the service",
    "web": "paths of the pages",
    "testing": "keys of a store under test",
    "work/__init__.py": "names of modules",
    "groups/index_group.py": "the name of a group of calls",
    "common/former_names.py": "names of calls",
    "model/uri.py": "an example of an address, in a hint",
    "store/base.py": "an example of a key, in a hint",
}
FOLDERS = "|".join([TABLE, *Folder])
# A folder beside a slash, as in f"{dataset}/files" and f"{dataset}/files/{name}"; names that mean
# nothing else; and the words that are in the names of heads, schema files and index files.
NAME = re.compile(
    rf".*/(?:{FOLDERS})(?:/.*)?|(?:{FOLDERS})/.*|.*by-dataset.*|.*_common_metadata.*"
    r"|cleanups|indices|signals|staging",
    re.DOTALL,
)


# What is spelt alike, and is something else: a part of a URL, an attribute, and a folder of uploads.
OTHER_THINGS = {
    "archive/archive.py": ["/data"],
    "archive/http_client.py": ["/data", "/v0/archive/files"],
    "state/group_commit.py": ["indices"],
    "tables/iceberg/catalog_tables.py": ["/data"],
}


def texts(module: str) -> Iterator[tuple[int, str]]:
    """Yield every text of a module with its line, but for docstrings."""
    tree = ast.parse(module)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def names(module: str, allowed: Sequence[str] = ()) -> list[str]:
    found = ((line, text) for line, text in texts(module) if NAME.fullmatch(text))
    return [f"{line}: {text!r}" for line, text in found if text not in allowed]


@pytest.mark.thorough
def test_no_other_module_spells_a_name_of_a_folder_or_an_object() -> None:
    spelt = {}
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if place == "model/layout.py" or any(
            f"{place}/".startswith(f"{elsewhere}/") for elsewhere in ELSEWHERE
        ):
            continue
        if found := names(path.read_text("utf-8"), OTHER_THINGS.get(place, ())):
            spelt[place] = found

    assert spelt == {}


@pytest.mark.parametrize("place", ELSEWHERE)
def test_every_exception_is_needed(place: str) -> None:
    paths = [SOURCE / place] if place.endswith(".py") else (SOURCE / place).rglob("*.py")

    assert any(names(path.read_text("utf-8")) for path in paths)


@pytest.mark.parametrize(
    "line",
    [
        'key = f"{dataset}/files"',
        'key = f"{dataset}/staging/{batch_id}"',
        'key = dataset + "/history/"',
        'FOLDER = "signals"',
        'key = "data/" + label',
        'name = "_common_metadata"',
        'key = f"{name}.by-dataset-metadata.json"',
        'is_it = folder in {"indices", other}',
    ],
)
def test_a_name_is_seen_however_it_is_put_together(line: str) -> None:
    assert names(line)


def test_heads_schema_files_and_index_files_are_where_kartothek_looks() -> None:
    moment = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)

    assert layout.schema_key("flights", TABLE) == "flights/data/_common_metadata"
    assert layout.index_key("flights", "a/b", moment) == (
        "flights/indices/a%2Fb/2013-01-01T12%3A00%3A00%2B00%3A00.by-dataset-index.parquet"
    )
    assert f"flights{layout.JSON_SUFFIX}" == "flights.by-dataset-metadata.json"
    assert f"flights{layout.MSGPACK_SUFFIX}" == "flights.by-dataset-metadata.msgpack.zstd"


def test_a_segment_is_known_by_its_name() -> None:
    key = Segment.new(Folder.FILES.of("flights"), 12, ".parquet").key

    assert re.fullmatch(r"flights/files/0000000012-[0-9a-f]{32}\.parquet", key)
    assert layout.is_segment_name(key.rpartition("/")[2])
    assert not layout.is_segment_name("0000000012-part.parquet")
    assert layout.postings_folder("flights", "a/b") == "flights/postings/a%2Fb"

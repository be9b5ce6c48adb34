"""What a client of HDFS makes of what nodes answer, and of silence."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
)
from lakebed.store import Store, open_store

if TYPE_CHECKING:
    from conftest import ScriptedService

Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, body; status 0 hangs up
TOKEN = "KAAKSm9i-secret-token-of-a-user"
LOST: Answer = (0, {}, b"")
DONE: Answer = (200, {}, b"")


def says(document: Mapping[str, Any], status: int = 200) -> Answer:
    return (status, {"content-type": "application/json"}, json.dumps(document).encode())


def refuses(exception: str, message: str = "no", status: int = 403) -> Answer:
    return says({"RemoteException": {"exception": exception, "message": message}}, status)


MISSING = refuses("FileNotFoundException", "File does not exist", 404)


def a_file(number: int | None = 7, size: int = 3, modified: int = 1_700_000_000_000) -> Answer:
    status = {
        "pathSuffix": "",
        "type": "FILE",
        "length": size,
        "modificationTime": modified,
        "childrenNum": 0,
    }
    return says({"FileStatus": status if number is None else {**status, "fileId": number}})


def opened(service: ScriptedService, **options: str) -> Store:
    address = service.url.removeprefix("http://")
    return open_store(
        f"webhdfs://{address}/lake", storage_options={"user": "ann", "max_retries": "2", **options}
    )


def written(service: ScriptedService) -> tuple[Answer, Answer]:
    """Answer a file that is written: a NameNode sends to a DataNode, and that one takes it."""
    return says({"Location": f"{service.url}/datanode?op=CREATE"}), (201, {}, b"")


def operations(service: ScriptedService) -> list[str]:
    return [one.path.partition("op=")[2].partition("&")[0] for one in service.requests]


# Who answers


@pytest.mark.parametrize("url", ["webhdfs://no-such-host.invalid/lake", "hdfs://127.0.0.1/lake"])
def test_host_that_is_mistyped_is_told_at_once_with_what_to_check(url: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        options = {"http_address": f"127.0.0.1:{unused.getsockname()[1]}"} if "127" in url else {}
        begin = time.monotonic()
        with pytest.raises(StorageError, match="No NameNode answers at http://") as caught:
            open_store(url, storage_options=options).get("a")

    assert time.monotonic() - begin < 5
    assert "http_address" in caught.value.hint
    assert not caught.value.retryable


def test_port_of_another_protocol_is_told(service: ScriptedService) -> None:
    service.script((404, {}, b"It looks like you are making an HTTP request to a Hadoop IPC port."))

    with pytest.raises(StorageError, match="not as WebHDFS does") as caught:
        opened(service).get("a")

    assert "8020" in caught.value.hint


def test_name_node_that_stands_by_is_passed_over(service: ScriptedService) -> None:
    standby = type(service)()
    try:
        standby.script(refuses("StandbyException", "Operation category READ is not supported"))
        service.script(a_file())
        both = ",".join(one.url.removeprefix("http://") for one in (standby, service))
        store = open_store("hdfs://name/lake", storage_options={"http_address": both})

        assert store.size("a") == 3
        assert store.size("a") == 3
    finally:
        standby.close()

    assert (len(standby.requests), len(service.requests)) == (1, 2)  # it asks there from then on


def test_what_is_refused_for_a_moment_is_asked_again(service: ScriptedService) -> None:
    service.script(refuses("SafeModeException"), refuses("RetriableException"), a_file())

    assert opened(service).size("a") == 3


def test_data_node_that_cannot_be_reached_is_named(service: ScriptedService) -> None:
    location = "http://data-node-1.invalid:9864/webhdfs/v1/a?op=OPEN"
    service.script(says({"Location": location}))

    with pytest.raises(StorageError, match=r"DataNode data-node-1\.invalid:9864") as caught:
        opened(service).get_range("a", 0, 1)

    assert "resolve" in caught.value.hint
    # Another one is asked for before that is said.
    assert any("excludedatanodes=data-node-1.invalid" in one.path for one in service.requests)


@pytest.mark.parametrize(
    "location",
    [
        *("file:///etc/passwd", "", None, 5, "http:///a", "http://[half/a"),
        *("http://node:port/a", "http://node:99999/a"),
    ],
)
def test_nowhere_else_is_gone_to_than_a_node(service: ScriptedService, location: object) -> None:
    service.script(says({"Location": location}))

    with pytest.raises(StorageError, match="not as WebHDFS"):
        opened(service).get_range("a", 0, 1)


@pytest.mark.parametrize(
    "answer", [(302, {"location": "http://login"}, b""), (200, {}, b"<html>log in</html>")]
)
def test_page_of_a_gateway_is_no_content(service: ScriptedService, answer: Answer) -> None:
    service.script(says({"Location": f"{service.url}/datanode?op=OPEN"}), answer)

    with pytest.raises(StorageError, match="not as WebHDFS"):
        opened(service).get_range("a", 0, 3)


@pytest.mark.parametrize("status", [200, 403])
def test_document_that_is_too_deep_is_refused(service: ScriptedService, status: int) -> None:
    service.script((status, {}, b"[" * 100_000))

    with pytest.raises(StorageError, match="not as WebHDFS"):
        opened(service).size("a")


# Answers that are lost


def test_create_whose_answer_is_lost_is_told_as_what_it_was(service: ScriptedService) -> None:
    service.script(*written(service), a_file(7), LOST, MISSING, a_file(7))

    etag = opened(service).create("d/a", b"new")

    assert etag.startswith("7-")
    assert operations(service)[-3:] == ["RENAME", "RENAME", "GETFILESTATUS"]


def test_create_whose_answer_is_lost_is_unknown_if_another_file_is_there(
    service: ScriptedService,
) -> None:
    service.script(*written(service), a_file(7), LOST, MISSING, a_file(8))

    with pytest.raises(StorageError, match="is not known") as caught:
        opened(service).create("d/a", b"new")

    assert caught.value.retryable


def test_create_that_was_not_carried_out_is_told_as_lost(service: ScriptedService) -> None:
    taken = refuses("FileAlreadyExistsException")
    service.script(*written(service), a_file(7), LOST, taken, says({"boolean": True}), a_file(8))

    with pytest.raises(ObjectExistsError):
        opened(service).create("d/a", b"new")


def test_create_that_is_refused_when_it_is_sent_again_may_have_landed(
    service: ScriptedService,
) -> None:
    expired = refuses("InvalidToken", "token is expired")
    service.script(*written(service), a_file(7), LOST, expired)

    with pytest.raises(StorageError, match="expired") as caught:
        opened(service).create("d/a", b"new")

    assert caught.value.retryable


def test_content_whose_writing_is_not_answered_is_written_under_another_name(
    service: ScriptedService,
) -> None:
    to_node = written(service)[0]
    service.script(to_node, LOST, says({"boolean": True}), *written(service), DONE)

    opened(service).put("d/a", b"new")

    names = [one.path.partition("?")[0] for one in service.requests if "noredirect" in one.path]
    assert len(set(names)) == 2
    assert all(".tmp" in name for name in names)


def test_service_that_ignores_how_to_move_is_not_trusted(service: ScriptedService) -> None:
    service.script(*written(service), a_file(7), says({"boolean": False}))

    with pytest.raises(StorageError, match="cannot move"):
        opened(service).create("d/a", b"new")


def test_service_without_numbers_of_files_can_be_read_only(service: ScriptedService) -> None:
    service.script(*written(service), a_file(None), says({"boolean": True}))

    with pytest.raises(ReadOnlyError, match="does not return the number") as caught:
        opened(service).create("d/a", b"new")

    assert "HttpFS" in caught.value.hint
    service.script(a_file(None))
    assert opened(service).size("a") == 3


# Errors


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuses("AccessControlException", "Permission denied: user=ann"), AccessDeniedError),
        (refuses("DSQuotaExceededException", "The quota is exceeded"), StorageFullError),
        (refuses("NSQuotaExceededException", "The quota is exceeded"), StorageFullError),
        (refuses("InvalidPathException", status=400), InvalidNameError),
        (refuses("ParentNotDirectoryException", "/lake/d (is not a directory)"), InvalidNameError),
        (refuses("LeaseExpiredException", "No lease"), StorageError),
        ((503, {}, b"busy"), StorageError),
    ],
)
def test_each_refusal_has_its_error(
    service: ScriptedService, answer: Answer, error: type[LakebedError]
) -> None:
    service.script(answer)

    with pytest.raises(LakebedError) as caught:
        opened(service, max_retries="0").put("d/a", b"new")

    assert type(caught.value) is error
    assert "d/" in caught.value.message


def test_name_node_that_answers_nonsense_as_it_starts_again_is_asked_again(
    service: ScriptedService,
) -> None:
    store = opened(service, max_retries="2")
    service.script(MISSING)
    with pytest.raises(ObjectNotFoundError):
        store.get("d/a")
    none_yet = refuses("IOException", "Failed to find datanode, suggest to check cluster health.")
    service.script((404, {}, b"<html>no such page</html>"), none_yet, MISSING)

    with pytest.raises(ObjectNotFoundError):
        store.get("d/a")

    service.script((404, {}, b"<html>no such page</html>"))
    with pytest.raises(StorageError, match="not as WebHDFS does") as caught:
        store.get("d/a")
    assert caught.value.retryable
    assert "are running" in caught.value.hint


def test_node_that_has_lost_another_one_may_be_asked_again(service: ScriptedService) -> None:
    service.script(refuses("EOFException", "End of File Exception between local host and NameNode"))

    with pytest.raises(StorageError, match="lost its connection") as caught:
        opened(service, max_retries="0").put("d/a", b"new")

    assert caught.value.retryable
    assert "are running" in caught.value.hint


@pytest.mark.parametrize("message", ["/lake/a (is not a directory)", "/lake/a is not a directory"])
def test_what_lies_under_a_file_is_not_there(service: ScriptedService, message: str) -> None:
    service.script(refuses("AccessControlException", message))

    with pytest.raises(ObjectNotFoundError, match="a/b"):
        opened(service).get("a/b")


def test_cluster_that_asks_for_kerberos_gets_a_remedy(service: ScriptedService) -> None:
    service.script((401, {"www-authenticate": "Negotiate"}, b"<html>Authentication required"))

    with pytest.raises(AccessDeniedError) as caught:
        opened(service).get("a")

    assert "GETDELEGATIONTOKEN" in caught.value.hint
    assert "delegation_token" in caught.value.hint


def test_token_is_sent_and_never_shown(
    service: ScriptedService, caplog: pytest.LogCaptureFixture
) -> None:
    service.script(refuses("InvalidToken", f"token {TOKEN} is expired"))
    store = opened(service, delegation_token=TOKEN)

    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(AccessDeniedError, match="is expired") as caught,
    ):
        store.get("a")

    assert f"delegation={TOKEN}" in service.requests[0].path
    assert "user.name" not in service.requests[0].path
    told = [caplog.text, str(caught.value), repr(store), repr(store.__reduce__())]
    assert caplog.text
    assert not [text for text in told if TOKEN in text]
    assert TOKEN not in repr(caught.value.__cause__)
    assert pickle.loads(pickle.dumps(store)).uri == store.uri


def test_list_that_does_not_go_on_ends_in_an_error(service: ScriptedService) -> None:
    entry = {"pathSuffix": "a", "type": "FILE", "length": 1, "modificationTime": 1, "fileId": 7}
    listing = {"partialListing": {"FileStatuses": {"FileStatus": [entry]}}, "remainingEntries": 5}
    service.script(says({"DirectoryListing": listing}))

    with pytest.raises(StorageError, match="repeats the same page"):
        list(opened(service).list())


# Where and as whom


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a directory for Hadoop's files the one that is looked into."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path


def configure(path: Path, **settings: str) -> None:
    entries = "".join(
        f"<property><name>{name.replace('__', '-').replace('_', '.')}</name>"
        f"<value>{value}</value></property>"
        for name, value in settings.items()
    )
    path.write_text(f"<?xml version='1.0'?><configuration>{entries}</configuration>")


def asked_at(url: str, service: ScriptedService) -> bool:
    service.script(a_file())
    return open_store(url).size("a") == 3 and len(service.requests) > 0


def test_files_of_hadoop_say_where_a_name_service_is(service: ScriptedService, conf: Path) -> None:
    configure(conf / "core-site.xml", fs_defaultFS="hdfs://lakes")
    configure(
        conf / "hdfs-site.xml",
        dfs_nameservices="other,lakes",
        dfs_ha_namenodes_lakes="nn1, nn2",
        dfs_namenode_http__address_lakes_nn1="nn1.invalid:9870",
        dfs_namenode_http__address_lakes_nn2=service.url.removeprefix("http://"),
    )

    assert asked_at("hdfs://lakes/lake", service)
    assert asked_at("hdfs:///lake", service)
    assert open_store("hdfs:///lake").uri == "hdfs://lakes/lake"


def test_files_of_hadoop_say_what_its_own_protocol_calls_a_name_node(conf: Path) -> None:
    configure(conf / "core-site.xml", fs_defaultFS="hdfs://name:8020/")
    configure(conf / "hdfs-site.xml", dfs_namenode_https__address="name:9999")

    def called(url: str) -> str | None:
        return open_store(url).hadoop_uri("a")

    assert called("webhdfs://name/lake") == "hdfs://name:8020/lake/a"
    assert called("webhdfs://name:9870/lake") == "hdfs://name:8020/lake/a"
    assert called("swebhdfs://name:9999/lake") == "hdfs://name:8020/lake/a"
    assert called("swebhdfs://name/lake") == "swebhdfs://name/lake/a"
    assert called("webhdfs://other:9870/lake") == "webhdfs://other:9870/lake/a"
    assert called("hdfs://name:8021/lake") == "hdfs://name:8021/lake/a"


def test_files_of_hadoop_that_cannot_be_read_are_named(conf: Path) -> None:
    (conf / "hdfs-site.xml").write_text("<configuration>")

    with pytest.raises(InvalidInputError, match=r"hdfs-site\.xml"):
        open_store("hdfs://lakes/lake")


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("hdfs:///lake", {}, "core-site.xml"),
        ("hdfs://ann@name/lake", {}, "the address"),
        ("hdfs://name:0/lake", {}, "name:0"),
        ("hdfs://name/a/../b", {}, r"'\.\.'"),
        ("hdfs://name/lake", {"http_address": "name:port"}, "http_address"),
        ("hdfs://name/lake", {"endpoint": "x"}, "endpoint"),
        ("hdfs://name/lake", {"read_timeout_s": "soon"}, "read_timeout_s"),
        ("hdfs://name/lake", {"max_retries": "1.5"}, "max_retries"),
    ],
)
def test_url_or_option_that_cannot_be_used_is_named(
    url: str, options: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)

    with pytest.raises(InvalidInputError, match=told):
        open_store(url, storage_options=options)


def test_user_is_who_was_named_or_who_runs_this(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.script(a_file())
    monkeypatch.setenv("HADOOP_USER_NAME", "bob")
    address = service.url.removeprefix("http://")

    opened(service).size("a")
    open_store(f"webhdfs://{address}/lake").size("a")

    assert [one.path.partition("user.name=")[2].partition("&")[0] for one in service.requests] == [
        "ann",
        "bob",
    ]


def test_key_with_the_character_that_stands_for_a_colon_is_refused(
    service: ScriptedService,
) -> None:
    with pytest.raises(InvalidNameError, match=r"U\+F03A"):
        opened(service).put("a\uf03ab", b"x")
    assert service.requests == []


def test_what_is_not_tried_again_is_not_logged_as_if_it_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        url = f"webhdfs://127.0.0.1:{unused.getsockname()[1]}/lake"
        with pytest.raises(StorageError, match="No NameNode answers"):
            open_store(url).get("a")

    assert caplog.records == []

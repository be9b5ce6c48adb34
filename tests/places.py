"""Where the tests of many writers and of killed ones keep their datasets: directories, servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from lakebed.store import Store, open_store

# `make servers-env` installs them.
PROGRAMS = Path(__file__).parents[1] / ".servers" / "bin"
BUCKET = "lake"
KEY = {"access_key_id": "lakebed-tests", "secret_access_key": "lakebed-tests-secret"}
_START_TIMEOUT_S = 60.0
_ARRIVAL_S = 0.2


@contextlib.contextmanager
def as_user_of_no_rights() -> Iterator[None]:
    """Let modes of directories hold, also where the superuser runs the tests."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The root of a repository, for this process and for those that it starts.

    Attributes:
        root: A directory, or a URL whose options are in the environment.
    """

    root: str

    @property
    def is_directory(self) -> bool:
        return "://" not in self.root

    @property
    def store(self) -> Store:
        return open_store(
            self.root, storage_options={"durable": "false"} if self.is_directory else None
        )

    def below(self, name: str) -> Place:
        return replace(self, root=f"{self.root}/{name}")

    def copied(self, suffix: str) -> Place:
        """Return another place with the same objects."""
        copy = replace(self, root=f"{self.root}-{suffix}")
        if self.is_directory:
            shutil.copytree(self.root, copy.root)
        else:
            source, target = self.store, copy.store
            for info in source.list():
                target.put(info.key, source.get(info.key).data)
        return copy

    def settle(self) -> None:
        """Wait until what a killed process has sent has arrived, or is carried out."""
        if not self.is_directory:
            time.sleep(_ARRIVAL_S)
            self.store.remove_leftovers("d", older_than=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A server of S3 that somebody else has written.

    Attributes:
        program: Its file name.
        arguments: With `{folder}`, `{host}`, `{port}` and `{address}` to fill in, and the key.
        environment: Same.
    """

    program: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @contextlib.contextmanager
    def serving(self, folder: Path) -> Iterator[dict[str, str]]:
        """Serve an empty bucket from a folder; yield the storage options that lead there."""
        for _ in range(3):  # somebody else may take the port that was free
            port = _free_port()
            names = {"folder": folder, "port": port, "host": "127.0.0.1", **KEY}
            names["address"] = f"127.0.0.1:{port}"
            with (folder.parent / f"{folder.name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [PROGRAMS / self.program, *(one.format(**names) for one in self.arguments)],
                    env={
                        **os.environ,
                        **{name: one.format(**names) for name, one in self.environment.items()},
                    },
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                try:
                    if _answers(process, names["address"]):
                        options = _options(f"http://{names['address']}")
                        _make_bucket(options)
                        yield options
                        return
                finally:
                    process.terminate()
                    process.wait()
        raise RuntimeError((folder.parent / f"{folder.name}.log").read_text()[-2000:])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://{address}/", timeout=5).close()
        except urllib.error.HTTPError as answer:
            with answer:
                if answer.code < 500:
                    return True
        except OSError:
            pass
        else:
            return True
        time.sleep(0.1)
    return False


def _options(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1", **KEY}


def _make_bucket(options: Mapping[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


SERVERS: Mapping[str, S3Server] = {
    "versitygw": S3Server(
        program="versitygw",
        arguments=("--port", "{address}", "--quiet", "posix", "{folder}"),
        environment={
            "ROOT_ACCESS_KEY": "{access_key_id}",
            "ROOT_SECRET_KEY": "{secret_access_key}",
        },
    ),
    "gofakes3": S3Server(
        program="gofakes3",
        arguments=("-host", "{address}", "-backend", "memory"),
        environment={},
    ),
    "s3s-fs": S3Server(
        program="s3s-fs",
        arguments=(
            *("--host", "{host}", "--port", "{port}", "--access-key", "{access_key_id}"),
            *("--secret-key", "{secret_access_key}", "{folder}"),
        ),
        environment={},
    ),
}

# Of the first, a trial finds that they keep writers apart; the others look first and write then.
TRUE_SERVERS = ("versitygw", "gofakes3")
HASTY_SERVERS = ("s3s-fs",)

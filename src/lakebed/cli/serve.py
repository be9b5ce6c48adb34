"""The verb serve, which shows a lake to browsers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, cast

import click
from click.core import ParameterSource

from lakebed.archive import open_archive
from lakebed.archive.http.server import checked_token, is_own_address, listening
from lakebed.cli.lakes import find_lake
from lakebed.cli.listening import listens
from lakebed.cli.output import Output
from lakebed.cli.shared_options import REPOSITORY_VARIABLE, storage_option, verb
from lakebed.errors import InvalidInputError
from lakebed.web.iceberg_door import DEFAULT_NAMESPACE, WRITES, IcebergDoor
from lakebed.web.serving import serve as serve_lake

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import CatalogRepository

TOKEN_VARIABLE = "LAKEBED_SERVE_TOKEN"
WRITE_TOKEN_VARIABLE = "LAKEBED_WRITE_TOKEN"
CONNECT_PORT = 15002  # Spark's own default


@verb("serve", example="lakebed serve s3://bucket/lake --archive s3://raw --index dynamodb://raw")
@click.argument("location", envvar=REPOSITORY_VARIABLE, required=False)
@click.option("--archive", "storage", metavar="URL", help="Storage of an archive to show, too.")
@click.option("--index", metavar="URL", help="Index of the archive.")
@click.option(
    "--iceberg", is_flag=True, help="Serve the lake to readers of Iceberg, too: a REST catalog."
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of the datasets in the root of the lake.  [default: lake]",
)
@click.option(
    "--iceberg-metadata",
    "metadata",
    metavar="URL",
    help="Where it writes metadata of datasets that are not published to Iceberg. Without it only "
    "clients that let the server plan can read those.",
)
@click.option(
    "--iceberg-root", "root", metavar="URL", help="URL of the lake for its readers, if another."
)
@click.option(
    "--allow-writes",
    "writes",
    type=click.Choice(WRITES),
    help="Let clients of Iceberg write: 'append' new rows and new tables only, or 'all', changes and "
    "drops, too.  "
    "[default: neither]",
)
@click.option(
    "--write-token",
    envvar=WRITE_TOKEN_VARIABLE,
    help="Token that clients of Iceberg must send to write, which can read, too. Prefer the "
    f"variable.  [env: {WRITE_TOKEN_VARIABLE}]",
)
@click.option(
    "--spark-connect",
    "connect",
    is_flag=True,
    help="Serve Spark Connect instead: clients send SQL and DataFrames, and the lake is a catalog of "
    f"each session. The default port is {CONNECT_PORT}.",
)
@click.option(
    "--catalog",
    metavar="NAME",
    help="Name of the lake in the SQL of --spark-connect.  [default: lake]",
)
@listens
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    help="Token that browsers must send as password, of any user, and programs as Authorization: "
    "Bearer TOKEN. Prefer the variable: other users of the machine can see command lines.  "
    f"[env: {TOKEN_VARIABLE}]",
)
@storage_option
def serve(
    output: Output,
    *,
    location: str | None,
    storage: str | None,
    index: str | None,
    iceberg: bool,
    namespace: str | None,
    metadata: str | None,
    root: str | None,
    writes: Literal["append", "all"] | None,
    write_token: str | None,
    connect: bool,
    catalog: str | None,
    host: str,
    port: int,
    token: str | None,
    public_url: str | None,
    storage_options: Mapping[str, str],
) -> None:
    """Serve a lake to browsers, Iceberg and Spark, and an archive.

    The server runs until interrupted. It is read-only, unless --allow-writes or --spark-connect is
    given. LOCATION is a repository, or LOCATION/NAME for one dataset; leave it out to show only an
    archive. The URL of the server is printed as soon as it listens. -v logs each request.
    """
    others = {
        "--archive": storage,
        "--index": index,
        "--iceberg": iceberg or None,
        "--public-url": public_url,
    }
    if connect:
        _check_alone(others)
        _serve_connect(output, location, catalog or "lake", host, port, token, storage_options)
        return
    if catalog is not None:
        message = "--catalog needs a server of Spark: give --spark-connect, too."
        raise click.UsageError(message, click.get_current_context())
    if index is not None and storage is None:
        message = "--index needs an archive: give --archive, too."
        raise click.UsageError(message, click.get_current_context())
    given = {
        "--namespace": namespace,
        "--iceberg-metadata": metadata,
        "--iceberg-root": root,
        "--allow-writes": writes,
    }
    for option, value in given.items():
        if value is not None and not iceberg:
            message = f"{option} needs a catalog: give --iceberg, too."
            raise click.UsageError(message, click.get_current_context())
    door = None
    if iceberg:
        door = IcebergDoor(
            namespace=DEFAULT_NAMESPACE if namespace is None else namespace,
            metadata=metadata,
            metadata_options=storage_options,
            root=root,
            allow_writes=writes,
            # The variable may be set for other servers, too.
            write_token=None if writes is None else write_token,
        )
    repository, name = (None, None) if location is None else find_lake(location, storage_options)
    archive = (
        None
        if storage is None
        else click.get_current_context().with_resource(
            open_archive(storage, index=index, storage_options=storage_options)
        )
    )
    if token is None and not is_own_address(host):
        output.note(f"Anyone who can reach {host} can read all of it; --token restricts access.")

    def show_url(url: str) -> None:
        output.record(
            {
                "url": url,
                "lake": None if repository is None else repository.uri,
                "archive": None if archive is None else archive.store.uri,
                **({} if door is None else {"iceberg": f"{url}/v1"}),
            }
        )
        sys.stdout.flush()

    serve_lake(
        repository,
        name=name,
        archive=archive,
        host=host,
        port=port,
        token=token,
        public_url=public_url,
        iceberg=door,
        on_start=show_url,
    )


def _check_alone(others: Mapping[str, object]) -> None:
    """Check that no option of another server is given.

    Raises:
        click.UsageError: One is given.
    """
    for option, value in others.items():
        if value is not None:
            message = f"{option} is of another server than --spark-connect: start one for each."
            raise click.UsageError(message, click.get_current_context())


def _serve_connect(
    output: Output,
    location: str | None,
    catalog: str,
    host: str,
    port: int,
    token: str | None,
    storage_options: Mapping[str, str],
) -> None:
    # Measured: a quarter of the time of the start, which the other servers need not wait for.
    from lakebed.spark.catalog.connect_server import serve_connect

    context = click.get_current_context()
    if location is None:
        raise click.UsageError("--spark-connect needs a lake: give LOCATION.", context)
    if token is None and not is_own_address(host):
        raise InvalidInputError(
            f"Anyone who can reach {host} could run any code with your rights.",
            hint=f"Set {TOKEN_VARIABLE}, or --token.",
        )
    repository, name = find_lake(location, storage_options)
    if name is not None:
        raise InvalidInputError(
            f"{location} is a dataset, and a catalog is a repository.",
            hint=f"Serve {repository.uri}: its table is {catalog}.{name}.",
        )
    if context.get_parameter_source("port") is ParameterSource.DEFAULT:
        port = CONNECT_PORT
    if token is None:
        output.note(
            "Every user of this machine can run code with your rights; --token prevents it."
        )

    def show_url(url: str) -> None:
        output.record({"url": url, "lake": repository.uri, "catalog": catalog})
        sys.stdout.flush()

    with listening(host, port) as listener:  # Spark would only name a failed plug-in
        port = listener.getsockname()[1]
    serve_connect(
        cast("CatalogRepository", repository),
        catalog=catalog,
        host=host,
        port=port,
        token=checked_token(token),
        on_start=show_url,
    )

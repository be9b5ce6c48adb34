"""Options of the verbs that start a server."""

from __future__ import annotations

import click

from lakebed.archive.http.server import DEFAULT_HOST, DEFAULT_PORT
from lakebed.cli.shared_options import Verb


def listens(function: Verb) -> Verb:
    """Add `--host`, `--port` and `--public-url`."""
    options = (
        click.option(
            "--host", default=DEFAULT_HOST, show_default=True, help="The address to listen on."
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65_535),
            default=DEFAULT_PORT,
            show_default=True,
            help="The port; 0 chooses a free one.",
        ),
        click.option(
            "--public-url",
            metavar="URL",
            help="URL of the server for its clients, if they use a proxy.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function

"""Where a server listens: the options that all verbs share which start one."""

from __future__ import annotations

import click

from lakebed.archive.http.server import DEFAULT_HOST, DEFAULT_PORT
from lakebed.cli.shared_options import Verb


def listens(function: Verb) -> Verb:
    """Give the function `host`, `port` and `public_url`."""
    options = (
        click.option(
            "--host", default=DEFAULT_HOST, show_default=True, help="The address to listen at."
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65_535),
            default=DEFAULT_PORT,
            show_default=True,
            help="The port; 0 takes a free one.",
        ),
        click.option(
            "--public-url",
            metavar="URL",
            help="How clients reach the server, if through a proxy.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function

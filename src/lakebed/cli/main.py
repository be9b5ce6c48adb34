"""The command `lakebed`, with its verbs and its handling of errors."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import lakebed
from lakebed.cli.group import LazyVerbGroup
from lakebed.cli.output import echo_folded, show_error
from lakebed.cli.verbs import SECTIONS, WAYS_TO_LOAD
from lakebed.common.shown import shown
from lakebed.errors import (
    ErrorCode,
    InvalidInputError,
    LakebedError,
    StorageFullError,
    redacted,
)

INTERRUPT_EXIT_CODE = 130  # 128 + SIGINT, as shells have it

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _Main(LazyVerbGroup):
    """The whole command line, with the handling of Lakebed's errors."""

    def main(  # type: ignore[override]  # click overloads it by what it returns
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run a command line; end the process unless `standalone_mode` is off."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        _ready_streams()
        try:
            code = super().main(args, standalone_mode=False, **extra)
            sys.stdout.flush()  # here, so that a closed pipe raises inside this block
        except LakebedError as error:
            notes = getattr(error, "__notes__", ())
            as_json = _wants_json(given)
            show_error(error.code, error.message, error.hint, as_json=as_json, notes=notes)
            code = error.exit_code
        except click.ClickException as error:
            code = _show_usage_error(error, as_json=_wants_json(given))
        except click.Abort as error:
            click.echo("Aborted.", err=True)
            causes = (error.__cause__, error.__context__)
            is_interrupt = any(isinstance(cause, KeyboardInterrupt) for cause in causes)
            code = INTERRUPT_EXIT_CODE if is_interrupt else 1
        except BrokenPipeError:
            # The reader of the pipe is done. Python would report an error at its own flush.
            _silence(sys.stdout)
            code = 1
        except OSError as error:
            if error.errno not in _NO_ROOM or error.filename is not None:
                raise
            # An error of a file has its name, one of a stream has none.
            _silence(sys.stdout)
            message = f"The result cannot be written: {error.strerror}."
            hint = "Free some space and run the command again. A commit that was made stays."
            show_error(StorageFullError.code, message, hint, as_json=_wants_json(given))
            code = StorageFullError.exit_code
        sys.exit(code if isinstance(code, int) else 0)


def _ready_streams() -> None:
    """Open streams that the caller closed, and escape characters that a terminal lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _wants_json(args: Sequence[str]) -> bool:
    """Return whether a command line, which may not parse, asks for JSON."""
    following = [*args[1:], ""] if args else []
    return any(
        argument in ("--json", "-ojson", "--output=json")
        or (argument in ("-o", "--output") and value == "json")
        for argument, value in zip(args, following, strict=True)
    )


def _show_usage_error(error: click.ClickException, *, as_json: bool) -> int:
    if as_json:
        hint = "See `lakebed --help`."
        context = getattr(error, "ctx", None)
        if context is not None:
            hint = f"See `{context.command_path} --help`."
        message = redacted(error.format_message())
        show_error(ErrorCode.INVALID_INPUT, message, hint, as_json=True)
    else:
        shown = io.StringIO()
        error.show(shown)
        echo_folded(redacted(shown.getvalue()).rstrip("\n"))
    return error.exit_code


@click.group(
    cls=_Main,
    sections=SECTIONS,
    ways=WAYS_TO_LOAD,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  lakebed query s3://bucket/lake/flights --where \"carrier = 'UA'\"",
)
@click.version_option(lakebed.__version__, prog_name="lakebed", message="%(prog)s %(version)s")
def main() -> None:
    """Datasets on plain storage, for people who work in PySpark.

    A DATASET is LOCATION/NAME, such as ./lake/flights or s3://bucket/lake/flights. If
    LAKEBED_REPOSITORY names the location, the bare name is enough.

    Results go to stdout, everything else to stderr. Exit codes: 2 wrong input, 3 not found,
    4 exists, 5 conflict, 6 storage, 7 format, 8 missing package, 9 committed but not published,
    1 anything else.
    """
    lineage = os.environ.get("LAKEBED_LINEAGE", "")
    if lineage:
        _enable_lineage(lineage)


def _enable_lineage(value: str) -> None:
    """Send events to OpenLineage while the command runs, if the environment asks for it."""
    from lakebed.telemetry import enable_lineage

    if value.lower() not in ("true", "false"):
        raise InvalidInputError(
            f"LAKEBED_LINEAGE is {shown(value)}.", hint="Set it to true or false, or unset it."
        )
    if value.lower() == "true":
        enable_lineage()

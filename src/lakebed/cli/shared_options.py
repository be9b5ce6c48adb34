"""The decorator for verbs, and the arguments that several verbs take."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
import shlex
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli.output import Output, OutputFormat
from lakebed.common.ages import parse_age
from lakebed.common.redaction import StorageOptions
from lakebed.dataset import Dataset
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    LakebedWarning,
    NotPublishedError,
)
from lakebed.model.locations import refuse_credentials
from lakebed.model.moments import to_moment
from lakebed.model.uri import KINDS, parse_uri
from lakebed.repository import Repository, open_repository
from lakebed.state.after import NotPublished, recording
from lakebed.state.reader import list_names
from lakebed.store import open_store

REPOSITORY_VARIABLE = "LAKEBED_REPOSITORY"

Verb = Callable[..., None]


class AttachedOption(click.Option):
    """An option with an optional value: a flag, or `--option=VALUE`.

    The next word is never its value, since it can be a file.
    """


class _VerbCommand(click.Command):
    """A verb that can have attached options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; an attached option without a value has an empty one."""
        attached = {
            name
            for parameter in self.params
            if isinstance(parameter, AttachedOption)
            for name in parameter.opts
        }
        end = args.index("--") if "--" in args else len(args)
        own = [f"{word}=" if word in attached else word for word in args[:end]]
        known = {option for parameter in self.params for option in parameter.opts}
        ctx.allow_extra_args = True
        try:
            super().parse_args(ctx, [*own, *args[end:]])
        except click.NoSuchOption as error:
            # Imported here, since a correct command line does not need it.
            from lakebed.cli.other_words import option_here

            ours = option_here(error.option_name, known)
            hint = f"In Lakebed it is {ours}." if ours else self._as_argument(ctx, error)
            if not hint:
                raise
            message = f"No such option {error.option_name!r}. {hint}"
            raise click.UsageError(message, ctx) from error
        if ctx.args and not ctx.resilient_parsing:
            raise click.UsageError(_too_many(ctx.args, known), ctx)
        return ctx.args

    def _as_argument(self, ctx: click.Context, error: click.NoSuchOption) -> str:
        """Return a hint if the option is an argument of the verb; empty otherwise."""
        name = error.option_name.lstrip("-").replace("-", "_").removesuffix("s")
        arguments = [
            parameter for parameter in self.params if isinstance(parameter, click.Argument)
        ]
        if name not in {(argument.name or "").removesuffix("s") for argument in arguments}:
            return ""
        words = " ".join(
            piece for argument in arguments for piece in argument.get_usage_pieces(ctx)
        )
        return f"It is an argument, given without a name: {ctx.command_path} {words}"


def _too_many(words: Sequence[str], known: Collection[str]) -> str:
    """Return the message for superfluous words, with a hint to an option of the verb."""
    ending = "" if len(words) == 1 else "s"
    message = f"Got unexpected extra argument{ending} ({' '.join(words)})"
    if "--version" in known and words[0].isdecimal():
        return f"{message}. Give a version as --version {words[0]}"
    if "--where" not in known:
        return message
    predicate = words[0] if " " in words[0] and '"' not in words[0] else "carrier = 'UA'"
    return f'{message}. Quote a predicate for the shell: --where "{predicate}", in double quotes.'


if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # generic from click 8.2 on


class _FormChoice(_Choice):
    """The output formats; a file name is refused with a hint to redirect the output."""

    def __init__(self) -> None:
        super().__init__([form.value for form in OutputFormat], case_sensitive=False)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> OutputFormat:
        """Return the format of a name."""
        if isinstance(value, str) and "." in value:
            name = shlex.quote(value)
            options = [] if ctx is None else [one for it in ctx.command.params for one in it.opts]
            if "--file" in options:
                self.fail(f"{value!r} is a file; give it as --file {name}", param, ctx)
            self.fail(f"{value!r} is a file; give a format: -o csv > {name}", param, ctx)
        return OutputFormat(super().convert(value, param, ctx))


def verb(name: str, *, example: str) -> Callable[[Verb], click.Command]:
    """Make a command of a function that takes an `Output` and the command's own parameters.

    Args:
        name: The name of the command.
        example: A complete command line, shown at the end of the help.
    """

    def decorate(function: Verb) -> click.Command:
        @functools.wraps(function)
        def run(
            *,
            output_format: OutputFormat,
            is_json: bool,
            verbosity: int,
            is_quiet: bool,
            **arguments: Any,
        ) -> None:
            chosen = OutputFormat.JSON if is_json else output_format
            with logging_to_stderr(verbosity), recording() as publications:
                output = Output(format=chosen, is_quiet=is_quiet, is_verbose=verbosity > 0)
                with _warnings_as_notes(output):
                    function(output, **arguments)
            require_published(publications.failed)

        epilog = f"\b\nExample:\n  {example}"
        command = click.command(name, cls=_VerbCommand, epilog=epilog)(run)
        command.params.extend(_shared_options())
        return command

    return decorate


@contextmanager
def _warnings_as_notes(output: Output) -> Iterator[None]:
    """Show Lakebed's warnings as notes, without the line of code that warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LakebedWarning)
        show = warnings.showwarning

        def note(
            message: Warning | str, category: type[Warning], *others: Any, **more: Any
        ) -> None:
            if issubclass(category, LakebedWarning):
                output.note(f"Warning: {message}")
            else:
                show(message, category, *others, **more)

        warnings.showwarning = note
        yield


def require_published(failures: Sequence[NotPublished]) -> None:
    """Raise an error if a commit of the verb was not published.

    Raises:
        NotPublishedError: A table named in the properties of a dataset does not show the commit.
    """
    if not failures:
        return
    first, *others = failures
    error = NotPublishedError(
        f"{first.dataset!r} is committed, but not published to {first.table}: {first.reason}",
        hint=f"{first.hint} The table shows an older version until the next commit, which "
        "publishes again, or until `lakebed publish all`.".strip(),
    )
    for other in others:
        error.add_note(f"{other.dataset!r} is not published to {other} either.")
    raise error


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["-o", "--output", "output_format"],
            type=_FormChoice(),
            default=OutputFormat.TABLE.value,
            help="Output format.  [default: table]",
        ),
        click.Option(["--json", "is_json"], is_flag=True, help="Short for -o json."),
        click.Option(
            ["-v", "--verbose", "verbosity"],
            count=True,
            help="Log commits on stderr; -vv logs every call to the store.",
        ),
        click.Option(["-q", "--quiet", "is_quiet"], is_flag=True, help="Leave out notes."),
    ]


# Commands note for people what these log for programs.
_NOTED = frozenset({"lakebed.pipeline.ingest_report", "lakebed.pipeline.pipeline"})


@contextmanager
def logging_to_stderr(verbosity: int) -> Iterator[None]:
    """Show the library's log on stderr: warnings; with 1 also information, with 2 everything."""
    logger = logging.getLogger("lakebed")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    if not verbosity:
        handler.addFilter(lambda record: record.name not in _NOTED)
    before = logger.level
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def parse_pairs(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    """Read the values of a repeated `key=value` option."""
    pairs = [value.partition("=") for value in values]
    for (key, sign, _), value in zip(pairs, values, strict=True):
        if not key or not sign:
            message = f"{value!r} is not of the form key=value."
            raise click.BadParameter(message, context, parameter)
    return {key: value for key, _, value in pairs}


def _parse_storage_options(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> StorageOptions:
    """Read storage options; an invalid one may be a secret, and is not shown."""
    if any(not sign or not name for name, sign, _ in (value.partition("=") for value in values)):
        message = "A value is not of the form KEY=VALUE."
        raise click.BadParameter(message, context, parameter)
    return StorageOptions(parse_pairs(context, parameter, values))


def storage_option(function: Verb) -> Verb:
    """Add `--storage-option`."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        callback=_parse_storage_options,
        metavar="KEY=VALUE",
        help="A setting of the object store, such as region=eu-west-1. Repeatable.",
    )(function)


def split_address(text: str) -> tuple[str, str]:
    """Split LOCATION/NAME; a bare name is looked up in the repository of the environment.

    A dataset: URI is accepted. Other URIs are refused, since the operation would apply to the whole
    dataset.

    Raises:
        InvalidInputError: The text lacks a location or a dataset, or it holds credentials.
    """
    refuse_credentials(text)
    if text.partition(":")[0] in KINDS:
        address = parse_uri(text)
        if address.kind != "dataset" or address.version is not None:
            raise InvalidInputError(
                f"{text!r} does not name a whole dataset.",
                hint=f"Write {address.location}/{address.name or 'NAME'}; verbs that take a view or "
                "an older version have --where and --version.",
            )
        return address.location, address.name
    stripped = text.rstrip("/")
    named, _, version = stripped.rpartition("@")
    if named and version.removeprefix("v").isdecimal():
        raise InvalidInputError(
            f"{text!r} names no dataset.",
            hint=f"A version has an option: {named} --version {version.removeprefix('v')}",
        )
    location, slash, name = stripped.rpartition("/")
    if slash and name and not location.endswith((":", ":/")):
        return location or "/", name
    if not slash and name and ":" not in name:
        repository = os.environ.get(REPOSITORY_VARIABLE, "")
        if repository:
            return repository, name
        raise _no_repository(name)
    raise InvalidInputError(
        f"{text!r} does not name a dataset.",
        hint="Write LOCATION/NAME, such as s3://bucket/lake/flights.",
    )


def _no_repository(name: str) -> InvalidInputError:
    """Return the error for a bare name, which may name a repository."""
    names = list_names(open_store(name)) if Path(name).is_dir() else []
    if names:
        return InvalidInputError(
            f"{name!r} is a repository, not a dataset.",
            hint=f"Write {name}/NAME, such as {name}/{names[0]}; `lakebed show {name}` lists all.",
        )
    if name in (".", ".."):
        return InvalidInputError(
            f"There is no dataset in the directory {name!r}.", hint="Write LOCATION/NAME."
        )
    return InvalidInputError(
        f"Dataset {name!r} is given without a repository.",
        hint=f"Write LOCATION/NAME, such as ./{name}, or set {REPOSITORY_VARIABLE}.",
    )


def dry_run_option(help: str) -> Callable[[Verb], Verb]:  # noqa: A002 - click's word
    """Add `--dry-run`, which means the same for every verb that writes.

    The verb makes the same checks, ends with the same exit code as far as that can be known, shows
    what would happen, and writes nothing.

    Args:
        help: The effect that is only shown.
    """
    return click.option("--dry-run", "is_dry_run", is_flag=True, help=help)


def age_option(name: str, default: str, help: str) -> Callable[[Verb], Verb]:  # noqa: A002 - same
    """Add an option for an age, such as `7d`.

    Args:
        name: Name of the option, with its dashes.
        default: The age if it is not given.
        help: The effect of the age.
    """
    return click.option(
        name,
        metavar="AGE",
        default=default,
        show_default=True,
        callback=lambda _, __, value: parse_age(value),
        help=help,
    )


def takes_dataset(function: Verb) -> Verb:
    """Give the function `repository` and `name` for the argument DATASET."""

    @functools.wraps(function)
    def run(
        output: Output, *, dataset: str, storage_options: Mapping[str, str], **arguments: Any
    ) -> None:
        _check_order(dataset, arguments.get("files") or ())
        location, name = split_address(dataset)
        repository = open_repository(location, storage_options=storage_options)
        function(output, repository=repository, name=name, **arguments)

    return click.argument("dataset", metavar="DATASET", shell_complete=complete_dataset)(
        storage_option(run)
    )


def complete_dataset(
    context: click.Context,  # noqa: ARG001 - click's form
    parameter: click.Parameter,  # noqa: ARG001 - same
    incomplete: str,
) -> list[str]:
    """Return the local datasets and directories whose address begins with a text."""
    location, slash, start = incomplete.rpartition("/")
    named = os.environ.get(REPOSITORY_VARIABLE, "")
    places = {location or "/": f"{location}/"} if slash else {".": ""}
    if named and not slash:
        places[named] = ""
    addresses: list[str] = []
    for place, prefix in places.items():
        folder = Path(place)
        if not folder.is_dir():
            continue
        with suppress(LakebedError, OSError):
            names = set(open_repository(place).list())
            if place != "." or "/" in prefix:
                addresses += [prefix + name for name in names if name.startswith(start)]
            if place != named:
                addresses += [
                    f"{prefix}{inner.name}/"
                    for inner in folder.iterdir()
                    if inner.is_dir()
                    and inner.name.startswith(start)
                    and not inner.name.startswith(".")
                    and inner.name not in names
                ]
    return sorted(addresses)


def _check_order(dataset: str, files: Sequence[str]) -> None:
    """Check that the first argument is the dataset, not a file.

    Raises:
        InvalidInputError: The first argument is a file.
    """
    if files and Path(dataset).is_file():
        verb_name = click.get_current_context().info_name
        name = next((text for text in files if not Path(text).is_file()), "LOCATION/NAME")
        raise InvalidInputError(
            f"{dataset!r} is a file, not a dataset.",
            hint=f"The dataset comes first: lakebed {verb_name} {name} {dataset}",
        )


def takes_state(function: Verb) -> Verb:
    """Give the function `dataset`, opened in the requested state."""

    @functools.wraps(function)
    def run(
        output: Output,
        *,
        repository: Repository,
        name: str,
        version: int | None,
        time: dt.datetime | None,
        batch_id: int | None,
        is_alone: bool,
        **arguments: Any,
    ) -> None:
        state = _which_state(version, time, batch_id, is_alone=is_alone)
        dataset: Dataset = repository.open(name)
        function(output, dataset=dataset.at(**state) if state else dataset, **arguments)

    return takes_dataset(_state_options(run))


def takes_place(function: Verb) -> Verb:
    """Give the function `place`: a dataset as `takes_state` does, or the whole repository."""

    @functools.wraps(function)
    def run(
        output: Output,
        *,
        location: str,
        storage_options: Mapping[str, str],
        version: int | None,
        time: dt.datetime | None,
        batch_id: int | None,
        is_alone: bool,
        **arguments: Any,
    ) -> None:
        state = _which_state(version, time, batch_id, is_alone=is_alone)
        place: Dataset | Repository
        try:
            above, name = split_address(location)
            dataset = open_repository(above, storage_options=storage_options).open(name)
            place = dataset.at(**state) if state else dataset
        except (DatasetNotFoundError, InvalidInputError):
            repository = _find_repository(location, storage_options)
            if repository is None:
                raise
            if state:
                message = f"{location!r} is a repository; name a dataset, as {location}/NAME."
                raise click.UsageError(message, click.get_current_context()) from None
            place = repository
        function(output, place=place, **arguments)

    argument = click.argument(
        "location", envvar=REPOSITORY_VARIABLE, shell_complete=complete_dataset
    )
    return argument(storage_option(_state_options(run)))


def _find_repository(location: str, storage_options: Mapping[str, str]) -> Repository | None:
    """Return the repository at a location; None if no dataset is in it."""
    try:
        text = parse_uri(location).location if location.startswith("repo:") else location
        repository = open_repository(text, storage_options=storage_options)
        return repository if repository.list() else None
    except LakebedError:
        return None


def _which_state(
    version: int | None, time: dt.datetime | None, batch_id: int | None, *, is_alone: bool
) -> dict[str, Any]:
    """Return the arguments for `Dataset.at`; empty for the current state."""
    targets = {"version": version, "time": time, "batch_id": batch_id}
    given = {name: target for name, target in targets.items() if target is not None}
    if len(given) > 1:
        message = "Give only one of --version, --time and --batch-id."
        raise click.UsageError(message, click.get_current_context())
    if is_alone and batch_id is None:
        message = "--alone needs a batch: give --batch-id, too."
        raise click.UsageError(message, click.get_current_context())
    return {**given, "alone": True} if is_alone else given


def _state_options(function: Verb) -> Verb:
    options = (
        click.option("--version", type=int, help="Read this version."),
        click.option(
            "--time", callback=parse_time, help="Read the state at this time; without zone, UTC."
        ),
        click.option("--batch-id", type=int, help="Read the state after the commit of this batch."),
        click.option(
            "--alone", "is_alone", is_flag=True, help="Read only the rows of the --batch-id batch."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def parse_time(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> dt.datetime | None:
    """Read the value of an option that takes a time."""
    try:
        return None if value is None else to_moment(value)
    except InvalidInputError as exc:
        raise click.BadParameter(str(exc), context, parameter) from exc


def takes_metastore(function: Verb) -> Verb:
    """Give the function `metastore`: an address, a directory, or None for a running session."""

    @functools.wraps(function)
    def run(output: Output, *, address: str | None, warehouse: str | None, **given: Any) -> None:
        if address is not None and warehouse is not None:
            message = "Give only one of --metastore and --warehouse."
            raise click.UsageError(message, click.get_current_context())
        if address is not None and not address.startswith("thrift://"):
            message = (
                f"--metastore takes thrift://HOST:PORT, not {address!r}; see --warehouse, too."
            )
            raise click.UsageError(message, click.get_current_context())
        function(output, metastore=address or warehouse, **given)

    options: tuple[Callable[[Verb], Verb], ...] = (
        click.option(
            "--metastore",
            "address",
            metavar="thrift://HOST:PORT",
            help="Address of a metastore service.",
        ),
        click.option(
            "--warehouse",
            metavar="DIR",
            help="Directory of an embedded metastore, for one process at a time.",
        ),
    )
    taking: Verb = run
    for option in reversed(options):
        taking = option(taking)
    return taking

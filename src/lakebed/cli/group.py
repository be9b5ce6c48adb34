"""Groups of verbs, which suggest the nearest verb for an unknown one."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Home(NamedTuple):
    """The module and the function of a verb, and the first line of its help."""

    module: str
    function: str
    help: str


class VerbGroup(click.Group):
    """Verbs in the order in which they were added."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the verb; raise a usage error for an option of the verb itself."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            # click before 8.2 ends with 0, as if a verb had done its work.
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = self._verb_with(ctx, given, error.option_name)
            if not words:
                raise
            path = " ".join([ctx.command_path, *words])
            message = (
                f"Option {error.option_name!r} goes after the verb: {path} {error.option_name}"
            )
            raise click.UsageError(message, ctx) from error

    def _verb_with(self, ctx: click.Context, args: list[str], option: str) -> list[str]:
        """Return the words that name a verb with an option; none if the first verb lacks it."""
        words: list[str] = []
        group: click.Group = self
        for word in args:
            command = group.get_command(ctx, word)
            if command is None:
                continue
            words.append(word)
            if isinstance(command, click.Group):
                group = command
                continue
            return words if any(option in parameter.opts for parameter in command.params) else []
        return []

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or raise a usage error that suggests one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            if args[0] == "help":
                # As in other tools; the next word can be a verb.
                words = " ".join([ctx.command_path, *(word for word in args[1:2] if word in known)])
                ctx.fail(f"There is no command 'help'. See `{words} --help`.")
            hint = self._in_order(ctx, args) or self._meant(ctx, args[0])
            hint = hint or f"See `{ctx.command_path} --help` for all."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def _in_order(self, ctx: click.Context, args: list[str]) -> str:
        """Return a hint if an address or a file stands in the position of the verb."""
        if not any(sign in args[0] for sign in "/."):
            return ""
        from lakebed.cli.other_words import FORMER_VERBS

        known = self.list_commands(ctx)
        default = FORMER_VERBS.get(self.name or "", "show")
        default = default if default in known else "COMMAND"
        verb = next((word for word in args[1:] if word in known), default)
        words = shlex.join(word for word in args if word != verb)
        return f"The command comes first: {ctx.command_path} {verb} {words}"

    def _meant(self, ctx: click.Context, word: str) -> str:
        """Return a hint that names the verb, for a misspelling or another tool's word."""
        # Imported here, since a correct command line does not need it.
        from lakebed.cli.other_words import command_here

        known, group = self.list_commands(ctx), "lakebed" if ctx.parent is None else self.name or ""
        return command_here(group, word, known)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's form
        """Return the names of the verbs."""
        return list(self.commands)


class LazyVerbGroup(VerbGroup):
    """Verbs in sections, each loaded when it is called."""

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Home]],
        ways: Mapping[str, str],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._ways = ways
        self._sections = sections
        self._verbs = {name: home for verbs in sections.values() for name, home in verbs.items()}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb of a name, or None."""
        home = self._verbs.get(cmd_name)
        if home is not None and cmd_name not in self.commands:
            self.add_command(getattr(importlib.import_module(home.module), home.function))
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs."""
        return list(dict.fromkeys([*self._verbs, *super().list_commands(ctx)]))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's form
        """Write a line of help for each verb, by sections, without loading the verbs."""
        width = max(map(len, self._verbs))
        room = formatter.width - width - 6  # the width that click leaves for the text of a row
        for title, verbs in self._sections.items():
            rows = [
                (f"{name:{width}}", click.Command(name, help=home.help).get_short_help_str(room))
                for name, home in verbs.items()
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

        with formatter.section("Ways to load files"):
            formatter.write_dl([(f"{name:{width}}", use) for name, use in self._ways.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that begin with a text, without loading them."""
        verbs = [
            CompletionItem(name, help=home.help)
            for name, home in self._verbs.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

"""A group of verbs, which suggests the nearest for one that it does not have."""

from __future__ import annotations

import click

from lakebed.model.names import nearest


class VerbGroup(click.Group):
    """Verbs in the order in which they were added."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which one may have been meant."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = nearest(args[0], self.commands) or f"See `{ctx.command_path} --help` for all."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's form
        """Return the names of the verbs."""
        return list(self.commands)

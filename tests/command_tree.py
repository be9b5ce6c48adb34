"""All commands of the command line, by what one types for them."""

import click

from lakebed.cli import main


def commands_of(group: click.Group, *before: str) -> dict[str, click.Command]:
    """Return all commands by what stands on the command line, those in groups too."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[" ".join((*before, name))] = command
        if isinstance(command, click.Group):
            found.update(commands_of(command, *before, name))
    return found


COMMANDS = commands_of(main)

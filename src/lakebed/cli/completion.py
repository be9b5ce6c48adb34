"""The verb completion, which prints a shell's completion script."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from lakebed.errors import InvalidInputError

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_LAKEBED_COMPLETE"  # click makes it of the name of the command


@click.command("completion", epilog="\b\nExample:\n  lakebed completion bash")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
def completion(*, shell: str | None) -> None:
    """Print the script that completes commands in a shell.

    SHELL defaults to the current shell. Put `eval "$(lakebed completion bash)"` into ~/.bashrc, the
    same with zsh into ~/.zshrc, or `lakebed completion fish | source` into
    ~/.config/fish/config.fish.
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - it may be empty
    if name not in _SHELLS:
        raise InvalidInputError(
            f"The shell {name!r} is not supported." if name else "The shell is unknown.",
            hint=f"Name one: {', '.join(_SHELLS)}.",
        )
    script = get_completion_class(name)
    assert script is not None
    root = click.get_current_context().find_root().command
    click.echo(script(root, {}, "lakebed", _VARIABLE).source())

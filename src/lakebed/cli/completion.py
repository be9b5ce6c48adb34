"""The verb that prints what makes a shell complete."""

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
    """Print what makes the shell complete what you type.

    SHELL is the one that runs, if it is left out. Put `eval "$(lakebed completion bash)"` into
    ~/.bashrc, the same with zsh into ~/.zshrc, or `lakebed completion fish | source` into
    ~/.config/fish/config.fish.
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - it may be empty
    if name not in _SHELLS:
        raise InvalidInputError(
            f"The shell {name!r} is not known." if name else "Which shell is it?",
            hint=f"Name one: {', '.join(_SHELLS)}.",
        )
    script = get_completion_class(name)
    assert script is not None
    root = click.get_current_context().find_root().command
    click.echo(script(root, {}, "lakebed", _VARIABLE).source())

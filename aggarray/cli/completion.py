"""Command ``aggarray completion``: print a completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    \b
    bash: add to ~/.bashrc:  eval "$(aggarray completion bash)"
    zsh:  add to ~/.zshrc:   eval "$(aggarray completion zsh)"
    fish: run  aggarray completion fish > ~/.config/fish/completions/aggarray.fish
    """
    completion = get_completion_class(shell)
    if completion is not None:
        click.echo(completion(ctx.find_root().command, {}, "aggarray", "_AGGARRAY_COMPLETE").source())

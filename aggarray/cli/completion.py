"""Command ``aggarray completion``: print a completion script for a shell."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    For bash: eval "$(aggarray completion bash)" in ~/.bashrc; for zsh the same with zsh in ~/.zshrc; for fish:
    aggarray completion fish > ~/.config/fish/completions/aggarray.fish
    """
    completion = get_completion_class(shell)
    if completion is not None:
        click.echo(completion(ctx.find_root().command, {}, "aggarray", "_AGGARRAY_COMPLETE").source())

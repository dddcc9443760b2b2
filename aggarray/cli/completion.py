"""How does a shell learn to complete commands, options, variables and dimensions? By the script that this prints."""

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
    made = get_completion_class(shell)
    if made is not None:
        click.echo(made(ctx.find_root().command, {}, "aggarray", "_AGGARRAY_COMPLETE").source())

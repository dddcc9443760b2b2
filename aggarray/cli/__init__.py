"""Commands of the shell: the object ``command`` of each module here.

The module of a command is imported when the command is used, or listed by ``--help``; it imports heavy modules only when it
runs. Results go to standard output, as text or with ``--json`` as data; progress (on a terminal only) and errors go to
standard error. Exit status: 0 success, 1 an error or problems that a command reports, 2 invalid usage, 130 interrupted by
Ctrl-C. A traceback appears only with ``--debug``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from aggarray.cli._hints import in_shell, option_first, options_of
from aggarray.errors import AggarrayError, printable


class FolderGroup(click.Group):
    """Group of the commands here, without modules that begin with "_"."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted."""
        return sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None if it does not exist."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors give advice by its options."""
        try:
            return super().invoke(ctx)
        except AggarrayError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if command is not None:
                options = options_of(command.params)
                error.args = tuple(option_first(text, options) if isinstance(text, str) else text for text in error.args)
                error.hint = None if error.hint is None else in_shell(error.hint, options)
            raise


@click.command(
    cls=FolderGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run 'aggarray COMMAND --help' for the options of a command.",
)
@click.version_option(sys.modules["aggarray"].__version__)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors (anywhere on the line).")
def commands(debug: bool) -> None:
    """One array out of many netCDF, HDF5 and Zarr files."""
    # `main` handles --debug; the option is declared for --help.


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; print errors in one line, or ``--debug`` tracebacks."""
    try:
        if arguments is None:
            # At the end of the process, the search for cycles of objects takes a tenth of a short command.
            atexit.register(gc.freeze)
        _run(arguments)
    # promise: early-interrupt
    except (click.Abort, KeyboardInterrupt):
        click.echo("aggarray: interrupted", err=True)
        raise SystemExit(130) from None


def _run(arguments: Sequence[str] | None) -> None:
    _open_streams()
    line = list(sys.argv[1:] if arguments is None else arguments)
    end = line.index("--") if "--" in line else len(line)
    options = [argument for argument in line[:end] if argument != "--debug"]
    debug = len(options) < end
    try:
        status = commands.main(args=[*options, *line[end:]], prog_name="aggarray", standalone_mode=False)
    except click.ClickException as error:
        if not isinstance(error, click.exceptions.NoArgsIsHelpError):  # its message is the help, of many lines
            vars(error)["message"] = printable(error.message)
        error.show()
        raise SystemExit(error.exit_code) from None
    except (AggarrayError, MemoryError, OSError) as error:
        text = "out of memory; select a smaller part" if isinstance(error, MemoryError) else str(error)
        if isinstance(error, OSError) and not isinstance(error, AggarrayError):
            # Otherwise the interpreter writes the rest again at exit, and fails.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            # Data files that do not open are AggarrayErrors: an error without a file name is one of the output.
            text = text if error.filename else f"the output cannot be written: {error.strerror or error}"
        if debug:
            raise
        click.echo(f"aggarray: {printable(text)}", err=True)
        raise SystemExit(1) from None
    raise SystemExit(status if isinstance(status, int) else 0)


def _open_streams() -> None:
    """Open closed standard streams, whose numbers the next file would get.

    Writing to a closed standard output is an error; a closed standard error is discarded.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (opened := os.open(os.devnull, os.O_RDONLY)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115

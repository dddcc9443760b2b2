"""Command ``aggarray run``: bring the outputs of a job file up to date."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from aggarray.cli._common import echo_json, json_option, make_rules
from aggarray.errors import AggarrayError


@click.command("run")
@click.argument("job", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Show the steps without carrying them out.")
@json_option
def command(job: str, dry_run: bool, as_json: bool) -> None:
    """Carry out the job of a TOML file.

    A job has inputs, rules, an index, extracts, pages and checks. Outputs that are up to date are not written again. The exit
    status is 0 on success, 1 for problems and errors, 2 for an invalid job file.
    """
    from aggarray.cli._job import read_job

    described = read_job(job)
    make_rules(described.rules)  # raises the error of invalid rules
    # After the checks, because it imports heavy modules.
    from aggarray.cli._running import Run

    with _locked(described.path) if not dry_run else contextlib.nullcontext():
        run = Run(described, dry_run, as_json)
        run.all_steps()
    if as_json:
        echo_json({"job": described.path, "dry_run": dry_run, "ok": not run.failed, "steps": run.steps})
    if run.failed:
        raise SystemExit(1)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the job file, because scheduled runs may overlap."""
    from aggarray.storage.locks import LockError, locked_file

    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            stack.enter_context(locked_file(file.fileno(), path, wait=False))
        except BlockingIOError as error:
            raise AggarrayError("the job is running already", path=path, hint="wait until it ends") from error
        except LockError as error:
            raise AggarrayError(f"cannot be locked: {error.what}", path=path, hint=error.hint) from error
        except OSError as error:
            hint = "on a file system without locks, make its folder writable"
            raise AggarrayError(f"cannot be locked: {error.strerror}", path=path, hint=hint) from error
        yield

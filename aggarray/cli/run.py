"""How is an archive kept up to date by a machine? ``aggarray run JOB.toml``: what has changed is done, and nothing else."""

import contextlib
from collections.abc import Iterator

import click

from aggarray.cli._common import echo_json, json_option, made_rules
from aggarray.errors import AggarrayError


@click.command("run")
@click.argument("job", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Say what would be done, and touch nothing.")
@json_option
def command(job: str, dry_run: bool, as_json: bool) -> None:
    """Carry out the job that a TOML file describes.

    Inputs, rules, an index, extracts and checks. What is up to date already is left as it is. Exit status: 0 done,
    1 problems or errors, 2 a wrong job file.
    """
    from aggarray.cli._job import read_job
    from aggarray.cli._running import Run

    asked = read_job(job)
    if asked.rules:
        made_rules(asked.rules)
    with _alone(asked.path) if not dry_run else contextlib.nullcontext():
        run = Run(asked, dry_run, as_json)
        run.note("start", asked.path, "run" if not dry_run else "would be run")
        run.all_steps()
        run.note("end", asked.path, "problems" if run.failed else "done")
    if as_json:
        echo_json({"job": asked.path, "dry_run": dry_run, "ok": not run.failed, "steps": run.steps})
    if run.failed:
        raise SystemExit(1)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold the job: runs that a clock starts may overlap."""
    from aggarray.storage.locks import LockError, locked_file

    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            stack.enter_context(locked_file(file.fileno(), path, wait=False))
        except BlockingIOError as error:
            raise AggarrayError(f"{path}: is running already: wait for that to end") from error
        except LockError as error:
            raise AggarrayError(f"{path}: cannot be locked: {error}") from error
        except OSError as error:
            why = f"{error.strerror}; on a file system without locks its folder has to be writable"
            raise AggarrayError(f"{path}: cannot be locked: {why}") from error
        yield

"""Scans of commands that resume from a partial index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from aggarray.errors import printable

resume_option = click.option(
    "--resume", is_flag=True, help="Continue an interrupted scan: skip the unchanged files in INDEX.partial."
)


@contextlib.contextmanager
def resumable(index: str, resume: bool, trust: str | None) -> Iterator[None]:
    """Keep a partial index in a block that scans files and saves an index.

    There is none beside an index in an object store. Raises UsageError if nothing could be resumed with this ``trust``.
    """
    from aggarray.opening.checkpoint import checkpointing
    from aggarray.storage.files import given_path
    from aggarray.storage.urls import is_remote

    if is_remote(given_path(index)):
        if resume:
            reason = "a partial index is a local file, and this scan kept none"
            raise click.UsageError(f"--resume does not apply to {printable(index)}: {reason}; scan again without --resume")
        yield
        return
    if resume and trust == "assume":
        reason = "a partial index holds no file of which only the coordinates are read"
        raise click.UsageError(f"--resume does not apply with --trust assume: {reason}; scan again without --resume")
    with checkpointing(f"{index}.partial", resume) as checkpoint:
        if checkpoint.note:
            click.echo(f"aggarray: {printable(checkpoint.note)}", err=True)
        try:
            yield
        except KeyboardInterrupt:
            if checkpoint.exists:
                hint = f"{printable(checkpoint.path)} contains the scanned files; pass --resume to continue"
                click.echo(f"aggarray: {hint}", err=True)
            raise
    if checkpoint.reused:
        click.echo(f"resumed: {checkpoint.reused:,} of the files were already scanned", err=True)
    checkpoint.remove()

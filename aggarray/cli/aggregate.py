"""Command ``aggarray aggregate``: join files and save an index."""

from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.errors import printable


@click.command("aggregate")
@common.source_argument
@click.option("-o", "--output", required=True, metavar="INDEX", type=click.Path(), help="The index file to write.")
@click.option(
    "--convention",
    type=click.Choice(["CF-1.13", "CFA-0.4"]),
    default="CF-1.13",
    show_default=True,
    help="The convention for other software.",
)
@click.option("--absolute", is_flag=True, help="Store absolute URIs of files, not relative ones.")
@click.option("--no-chunk-table", is_flag=True, help="Do not store the positions of chunks in the files.")
@click.option("--resume", is_flag=True, help="Continue an interrupted scan: skip the files in INDEX.partial.")
@common.variables_option
@common.rules_options
@common.opening_options
@common.json_option
def command(output: str, convention: str, absolute: bool, no_chunk_table: bool, resume: bool, **arguments: Any) -> None:
    """Join the files of SOURCE and save an index of them.

    The index opens in milliseconds, in aggarray and in other software. During the scan, INDEX.partial contains the files
    scanned so far; it is removed when the index is saved.
    """
    from aggarray.opening.checkpoint import checkpointing

    with checkpointing(f"{output}.partial", resume) as checkpoint:
        if checkpoint.note:
            click.echo(f"aggarray: {printable(checkpoint.note)}", err=True)
        try:
            agg = common.open_arguments(arguments)
            if checkpoint.reused:
                click.echo(f"resumed: {checkpoint.reused:,} of the files were already scanned", err=True)
        except KeyboardInterrupt:
            if checkpoint.exists:
                click.echo(
                    f"aggarray: {printable(checkpoint.path)} contains the scanned files; pass --resume to continue", err=True
                )
            raise
    common.save(agg, output, arguments, convention=convention, relative=not absolute, chunk_table=not no_chunk_table)
    checkpoint.remove()

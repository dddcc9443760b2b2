"""Command ``aggarray aggregate``: join files and save an index."""

from __future__ import annotations

from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.cli._resuming import resumable, resume_option


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
@resume_option
@common.variables_option
@common.rules_options
@common.opening_options
@common.json_option
def command(output: str, convention: str, absolute: bool, no_chunk_table: bool, resume: bool, **arguments: Any) -> None:
    """Join the files of SOURCE and save an index of them.

    The index opens in milliseconds, in aggarray and in other software. During the scan, INDEX.partial contains the files
    scanned so far; it is removed when the index is saved.
    """
    with resumable(output, resume, arguments["trust"]):
        agg = common.open_arguments(arguments)
        common.save(agg, output, arguments, convention=convention, relative=not absolute, chunk_table=not no_chunk_table)

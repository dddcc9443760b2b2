"""Command ``aggarray aggregate``: join files and save an index."""

from typing import Any

import click

from aggarray.cli._common import (
    json_option,
    open_source,
    opening_options,
    protected_sources,
    rules_options,
    save,
    source_argument,
    variables_option,
)


@click.command("aggregate")
@source_argument
@variables_option
@json_option
@click.option("-o", "--output", required=True, metavar="INDEX", type=click.Path(), help="The index file to write.")
@click.option("--convention", type=click.Choice(["CF-1.13", "CFA-0.4"]), default="CF-1.13", show_default=True)
@click.option("--absolute", is_flag=True, help="Store absolute URIs of files, not relative ones.")
@click.option("--no-chunk-table", is_flag=True, help="Do not store the positions of chunks in the files.")
@rules_options
@opening_options
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, output: str, **arguments: Any) -> None:
    """Join the files of SOURCE and save an index of them.

    The index opens in milliseconds, in aggarray and in other software.
    """
    agg = open_source(source, variables, arguments["opening"], arguments["rules"])
    options = {"convention": arguments["convention"], "relative": not arguments["absolute"]}
    options["chunk_table"] = not arguments["no_chunk_table"]
    with protected_sources(output, source, agg):
        save(agg, output, as_json, **options)

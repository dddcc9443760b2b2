"""How is an index made of files? ``aggarray aggregate``."""

from typing import Any

import click

from aggarray.cli._common import (
    json_option,
    open_source,
    opening_options,
    rules_options,
    save,
    source_argument,
    sparing,
    variables_option,
)


@click.command("aggregate")
@source_argument
@variables_option
@json_option
@click.option("-o", "--output", required=True, metavar="INDEX", type=click.Path(), help="The index file to write.")
@click.option("--convention", type=click.Choice(["CF-1.13", "CFA-0.4"]), default="CF-1.13", show_default=True)
@click.option("--absolute", is_flag=True, help="Name files by absolute URIs, not relative to the index.")
@click.option("--no-chunk-table", is_flag=True, help="Do not look up where in the files their chunks lie.")
@rules_options
@opening_options
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, output: str, **how: Any) -> None:
    """Join the files of SOURCE and save an index of them.

    It opens in milliseconds, here and in other software.
    """
    agg = open_source(source, variables, how["opening"], how["rules"])
    kept = {"convention": how["convention"], "relative": not how["absolute"], "chunk_table": not how["no_chunk_table"]}
    with sparing(output, source, agg):
        save(agg, output, as_json, **kept)

"""What does an aggregation look like? ``aggarray view``: one HTML page with its partition matrices drawn."""

from typing import Any

import click

from aggarray.cli._common import (
    counted,
    echo_json,
    json_option,
    open_source,
    opening_options,
    rules_options,
    source_argument,
    sparing,
    variables_option,
)


@click.command("view")
@source_argument
@variables_option
@click.option("-o", "--output", required=True, metavar="PAGE.html", type=click.Path(), help="The page to write.")
@click.option("--title", help="What stands above it.")
@click.option("--check", is_flag=True, help="Look whether all files are there and unchanged, too; that opens each.")
@rules_options
@opening_options
@json_option
def command(
    source: tuple[str, ...], variables: tuple[str, ...], output: str, title: str | None, check: bool, as_json: bool, **how: Any
) -> None:
    """Draw the arrays of SOURCE on one HTML page.

    Which file covers what, what is virtual, missing or conformed, what stayed apart and why. The page needs nothing else and no
    network.

    A page that is there already is replaced; any other file is left alone.
    """
    from aggarray.display import facts, report

    agg = open_source(source, variables, **how)
    page = report.page(agg, title, agg.check() if check else None)
    with sparing(output, source, agg):
        changed = report.write(page, output)
    if as_json:
        echo_json({"page": output, "arrays": len(agg), "files": facts.file_count(agg), "changed": changed})
    else:
        click.echo(facts.printable(f"{output}: {counted(len(agg), 'array')} of {counted(facts.file_count(agg), 'file')}"))

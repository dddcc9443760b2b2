"""Command ``aggarray view``: write an HTML page with the partition matrices."""

from typing import Any

import click

from aggarray.cli._common import (
    counted,
    echo_json,
    json_option,
    open_source,
    opening_options,
    protected_sources,
    rules_options,
    source_argument,
    variables_option,
)


@click.command("view")
@source_argument
@variables_option
@click.option("-o", "--output", required=True, metavar="PAGE.html", type=click.Path(), help="The page to write.")
@click.option("--title", help="The title of the page.")
@click.option("--check", is_flag=True, help="Also check that all files exist and are unchanged; this opens each.")
@rules_options
@opening_options
@json_option
def command(
    source: tuple[str, ...],
    variables: tuple[str, ...],
    output: str,
    title: str | None,
    check: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw the arrays of SOURCE on one HTML page.

    The page shows which file covers which part, virtual, missing and converted parts, and arrays that were not joined, with
    reasons. It needs no other file and no network.

    An existing page is replaced; any other existing file is an error.
    """
    from aggarray.display import facts, report

    agg = open_source(source, variables, **options)
    page = report.page(agg, title, agg.check() if check else None)
    with protected_sources(output, source, agg):
        changed = report.write(page, output)
    if as_json:
        echo_json({"page": output, "arrays": len(agg), "files": facts.file_count(agg), "changed": changed})
    else:
        click.echo(facts.printable(f"{output}: {counted(len(agg), 'array')} of {counted(facts.file_count(agg), 'file')}"))

"""Command ``aggarray view``: write an HTML page with partition matrices."""

from __future__ import annotations

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("view")
@common.source_argument
@common.variables_option
@click.option("-o", "--output", required=True, metavar="PAGE.html", type=click.Path(), help="The page to write.")
@click.option("--title", help="The title of the page.")
@click.option("--check", is_flag=True, help="Also check that all files exist and are unchanged; this opens each.")
@click.option("--layout", is_flag=True, help="Also check how the files store values.")
@click.option("--profile", metavar="NAME|FILE.toml", help="Limits of --layout: default, cmip7, cloud or a TOML file.")
@click.option("--group-by", metavar="NAME", help="Group the datasets by this attribute, such as table_id.")
@common.rules_options
@common.opening_options
@common.json_option
def command(
    output: str,
    title: str | None,
    check: bool,
    layout: bool,
    profile: str | None,
    group_by: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Draw the arrays of SOURCE on one HTML page.

    The page shows the datasets on one time axis with gaps and overlaps, then for each array which file covers which part,
    virtual, missing and converted parts, and lines of Python and the shell that open it. It needs no other file and no network.

    An existing page is replaced; any other existing file is an error.
    """
    from aggarray.display import facts, report

    limits = common.layout_profile(layout, profile)
    agg = common.open_arguments(arguments)
    if group_by is not None and group_by != "name":
        from aggarray.opening.where import check_attribute

        check_attribute(agg.arrays, group_by, "--group-by")
    findings = None if limits is None else common.check_layout(agg, limits, arguments)
    page = report.page(agg, title, agg.check() if check else None, arguments["source"], group_by, layout=findings)
    with common.protected_sources(output, arguments["source"], agg):
        changed = report.write(page, output)
    if as_json:
        common.echo_json({"page": output, "arrays": len(agg), "files": facts.file_count(agg), "changed": changed})
    else:
        click.echo(facts.printable(f"{output}: {common.arrays_of_files(agg)}"))

"""Command ``aggarray info``: list the arrays of a source."""

from __future__ import annotations

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("info")
@common.source_argument
@common.variables_option
@common.group_option
@common.rules_options
@common.opening_options
@common.json_option
def command(group_by: list[str], as_json: bool, **arguments: Any) -> None:
    """List the arrays of SOURCE.

    SOURCE is an index, or files, folders and quoted patterns such as 'data/**/*.nc'. The problems of a group are those found
    without opening files: gaps, holes and duplicates.
    """
    from aggarray.display.facts import aggregation_facts, file_count

    agg = common.open_arguments(arguments)
    if group_by:
        from aggarray.opening.checking import array_problems

        common.echo_groups(agg, group_by, array_problems(agg._outcome), as_json)
        return
    arrays = aggregation_facts(agg, with_paths=as_json)
    if as_json:
        common.echo_json(arrays)
        return
    from aggarray.display.facets import facet_columns
    from aggarray.display.listing import array_list
    from aggarray.display.table import terminal_width

    click.echo(array_list(arrays, facet_columns(agg.arrays), terminal_width(), files=file_count(agg)))
    if agg.refusals or agg.skipped:
        from aggarray.cli._notes import echo_notes

        echo_notes(agg, "run aggarray explain for the reasons")

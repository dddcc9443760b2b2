"""Command ``aggarray info``: list the arrays of a source."""

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("info")
@common.source_argument
@common.variables_option
@common.rules_options
@common.opening_options
@common.json_option
def command(as_json: bool, **arguments: Any) -> None:
    """List the arrays of SOURCE.

    SOURCE is an index, or files, folders and quoted patterns such as 'data/**/*.nc'.
    """
    from aggarray.display import facts
    from aggarray.display.table import table

    agg = common.open_arguments(arguments)
    arrays = facts.aggregation_facts(agg)
    if as_json:
        common.echo_json(arrays)
        return
    rows = []
    for fact in arrays:
        matrix, times = fact["partitions"], " to ".join(dict.fromkeys(fact["time"] or ()))
        counts = facts.sizes(matrix["dimensions"], matrix["shape"]) + (
            f" ({matrix['missing']} missing)" * (matrix["missing"] > 0)
        )
        rows.append(
            [fact["name"], fact["which"], " ".join(fact["dimensions"]), fact["type"], fact["units"] or "", counts, times]
        )
    head = ["name", "which", "dimensions", "type", "units", "partitions", "time range"]
    if not any(fact["which"] for fact in arrays):
        head, rows = [head[0], *head[2:]], [[row[0], *row[2:]] for row in rows]
    click.echo(table(rows, head))
    common.echo_notes(agg, "run aggarray explain for the reasons")

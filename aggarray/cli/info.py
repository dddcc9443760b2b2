"""Command ``aggarray info``: list the arrays of a source."""

from typing import Any

import click

from aggarray.cli._common import (
    echo_json,
    echo_notes,
    json_option,
    open_source,
    opening_options,
    rules_options,
    source_argument,
    variables_option,
)


@click.command("info")
@source_argument
@variables_option
@rules_options
@opening_options
@json_option
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """List the arrays of SOURCE.

    SOURCE is an index, or files, folders and quoted patterns such as 'data/**/*.nc'.
    """
    from aggarray.display import facts

    agg = open_source(source, variables, **arguments)
    arrays = facts.aggregation_facts(agg)
    if as_json:
        echo_json(arrays)
        return
    rows, repeated = [], any(fact["which"] for fact in arrays)
    for fact in arrays:
        matrix = (
            " x ".join(f"{n} {d}" for d, n in zip(fact["partitions"]["dimensions"], fact["partitions"]["shape"], strict=True))
            or "1"
        )
        missing = fact["partitions"]["missing"]
        times = " to ".join(dict.fromkeys(fact["time"] or ()))
        rows.append(
            [
                fact["name"],
                *([fact["which"]] if repeated else []),
                " ".join(fact["dimensions"]),
                fact["type"],
                fact["units"] or "",
                matrix + (f" ({missing} missing)" if missing else ""),
                times,
            ]
        )
    which = ["which"] if repeated else []
    click.echo(facts.table(rows, ["name", *which, "dimensions", "type", "units", "partitions", "time range"]))
    echo_notes(agg, "run aggarray explain for the reasons")

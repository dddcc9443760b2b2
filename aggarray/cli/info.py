"""Which arrays are there? ``aggarray info``."""

from typing import Any

import click

from aggarray.cli._common import (
    echo_json,
    json_option,
    notes,
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
def command(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """List the arrays of SOURCE.

    SOURCE: an index, files, folders or quoted patterns such as 'data/**/*.nc'.
    """
    from aggarray.display import facts

    agg = open_source(source, variables, **how)
    found = facts.aggregation_facts(agg)
    if as_json:
        echo_json(found)
        return
    rows, repeated = [], any(fact["which"] for fact in found)
    for fact in found:
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
    notes(agg, "aggarray explain says why")

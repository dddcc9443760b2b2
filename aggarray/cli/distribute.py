"""Command ``aggarray distribute``: show an array's sections per process."""

from __future__ import annotations

from math import prod
from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.errors import ProtocolError

#: The sections of more processes take gigabytes of text.
MOST_PROCESSES = 100_000


@click.command("distribute")
@common.source_argument
@common.variable_option
@click.option("-n", "--processes", type=click.IntRange(min=1), metavar="N", help="The number of processes.")
@click.option("--grid", metavar="NxM...", help="Processes along each dimension, such as 2x2 (default: all along the first).")
@click.option("--dist", metavar="b,c...", help="Block (b) or cyclic (c), for each dimension (default: block).")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Elements per block of cyclic dimensions.")
@click.option(
    "--partitions",
    type=click.Choice(["contiguous", "cost"]),
    help="Distribute whole partitions, in order or by the cost of reading them.",
)
@click.option("--protocol", default="0.10.0", show_default=True, metavar="VERSION", help="The version of the protocol.")
@common.opening_options
@common.json_option
def command(processes: int | None, protocol: str, as_json: bool, **arguments: Any) -> None:
    """Show the sections of an array per process.

    The output is the dim_data of every rank (Distributed Array Protocol). Dimensions that --dist or --grid do not mention
    are not divided. Ragged arrays are divided into blocks with about equal numbers of samples.
    """
    from aggarray.display import distributions
    from aggarray.display.table import table

    grid = _grid(arguments["grid"], processes)
    dist, block_size, partitions = arguments["dist"], arguments["block_size"], arguments["partitions"]
    if prod(grid) > MOST_PROCESSES:
        raise click.UsageError(f"{prod(grid)} processes are too many; give at most {MOST_PROCESSES}")
    if partitions and (dist or block_size):
        raise click.UsageError("--partitions excludes --dist and --block-size; leave one of them out")
    array = common.only_array(common.open_arguments(arguments), arguments["variable"])
    if prod(grid[array.ndim :]) > 1:
        raise click.UsageError(f"--grid has {len(grid)} numbers for {array.ndim} dimensions: {' '.join(array.dimensions)}")
    try:
        distribution = distributions.make_distribution(array, grid, dist, block_size, partitions)
        sections = distributions.distribution_facts(array, distribution, protocol)
    except ProtocolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        common.echo_json(sections)
        return
    samples = ["samples"] * ("samples" in sections["ranks"][0])
    head = ["rank", *sections["dimensions"], "local shape", *samples]
    click.echo(table(distributions.section_rows(sections), head))


def _grid(text: str | None, processes: int | None) -> tuple[int, ...]:
    """Return the process grid of the options, without unmentioned dimensions."""
    if text is None:
        if processes is None:
            raise click.UsageError("the number of processes is missing; give -n or --grid")
        return (processes,)
    try:
        grid = tuple(int(n) for n in text.lower().split("x"))
    except ValueError:
        grid = (0,)
    if min(grid) < 1:
        raise click.BadParameter(f"{text!r} is not a grid; give numbers such as 2x2", param_hint="--grid")
    if processes is not None and prod(grid) != processes:
        raise click.BadParameter(f"{text} has {prod(grid)} processes, not {processes}", param_hint="--grid")
    return grid

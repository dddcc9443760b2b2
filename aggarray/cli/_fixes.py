"""The option ``--fixes``, and the fixes that match no file."""

from typing import TYPE_CHECKING

import click

from aggarray.errors import printable

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation

fixes_option = click.option(
    "--fixes",
    multiple=True,
    metavar="FILE.toml|NAME",
    help="Repair metadata as a file of fixes says, or known faults such as cmip6 (repeatable).",
)


def echo_unmatched(agg: "Aggregation") -> None:
    """Print the fixes that match no file to standard error."""
    if agg.fixes:
        from aggarray.opening.fixing import unmatched

        for fix in unmatched(agg._provenance):
            click.echo(printable(f"{fix!r} matches no file"), err=True)

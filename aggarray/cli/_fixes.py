"""Notes of the fixes that match no file."""

from typing import TYPE_CHECKING

import click

from aggarray.errors import printable

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation


def echo_unmatched(agg: "Aggregation") -> None:
    """Print the fixes that match no file to standard error."""
    from aggarray.opening.fixing import unmatched

    for fix in unmatched(agg._provenance):
        click.echo(printable(f"{fix!r} matches no file"), err=True)

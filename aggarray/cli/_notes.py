"""Notes on standard error: what was not joined, fixes that match no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aggarray.errors import printable

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation


def echo_unmatched(agg: Aggregation) -> None:
    """Print the fixes that match no file to standard error."""
    from aggarray.opening.fixing import unmatched

    for fix in unmatched(agg._provenance):
        click.echo(printable(f"{fix!r} matches no file"), err=True)


def echo_notes(agg: Aggregation, hint: str, skipped: bool = True) -> None:
    """Print the numbers of refusals and skipped files to standard error.

    Datasets are expected to stay separate. ``skipped``: False = the output has listed skipped files.
    """
    if not agg.refusals and not agg.skipped:
        return
    from aggarray.display.refusals import notes

    if counts := notes(agg.refusals, agg.skipped if skipped else (), agg._provenance.rules.separate_by):
        click.echo(f"{', '.join(counts)}; {hint}", err=True)

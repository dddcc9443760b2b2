"""Command ``aggarray append``: add files to an index."""

import os
from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.errors import AggarrayError


@click.command("append")
@click.argument("index", type=click.Path())
@common.source_argument
@common.opening_options
@common.json_option
def command(index: str, **arguments: Any) -> None:
    """Add the files of SOURCE to an INDEX.

    This reads only new and changed files.
    """
    from aggarray.index.saving import may_be_replaced

    if arguments["where"]:
        hint = "an index keeps the selection it was made with; give --where to `aggarray aggregate`"
        raise click.UsageError(f"--where does not apply to append; {hint}")
    before = common.open_arguments({**arguments, "source": (index,)})
    if os.path.isfile(index) and not may_be_replaced(index):
        hint = "make an index with `aggarray aggregate`, and append to that"
        raise click.UsageError(str(AggarrayError("not an index", path=index, hint=hint)))
    agg = before.append(list(arguments["source"]), progress=common.progress_bar())
    common.save(agg, index, arguments, **agg._provenance.how)

"""Command ``aggarray append``: add files to an index."""

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("append")
@click.argument("index", type=click.Path())
@common.source_argument
@common.opening_options
@common.json_option
def command(index: str, **arguments: Any) -> None:
    """Add the files of SOURCE to an INDEX.

    This reads only new and changed files.
    """
    before = common.open_arguments({**arguments, "source": (index,)})
    agg = before.append(list(arguments["source"]), progress=common.progress_bar())
    common.save(agg, index, arguments, **agg._provenance.how)

"""Command ``aggarray append``: add files to an index."""

from typing import Any

import click

from aggarray.cli._common import (
    json_option,
    open_source,
    opening_options,
    progress_bar,
    protected_sources,
    save,
    source_argument,
)


@click.command("append")
@click.argument("index", type=click.Path())
@source_argument
@opening_options
@json_option
def command(index: str, source: tuple[str, ...], as_json: bool, opening: dict[str, Any]) -> None:
    """Add the files of SOURCE to an INDEX.

    This reads only new and changed files.
    """
    agg = open_source((index,), opening=opening).append(list(source), progress=progress_bar())
    with protected_sources(index, source, agg):
        save(agg, index, as_json, **agg._provenance.how)

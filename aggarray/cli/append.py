"""How are files added to an index? ``aggarray append``."""

from typing import Any

import click

from aggarray.cli._common import bar, json_option, open_source, opening_options, save, source_argument, sparing


@click.command("append")
@click.argument("index", type=click.Path())
@source_argument
@opening_options
@json_option
def command(index: str, source: tuple[str, ...], as_json: bool, opening: dict[str, Any]) -> None:
    """Add the files of SOURCE to an INDEX.

    Only new or changed files are read.
    """
    agg = open_source((index,), opening=opening).append(list(source), progress=bar())
    with sparing(index, source, agg):
        save(agg, index, as_json, **agg._provenance.how)

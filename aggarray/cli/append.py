"""How are files added to an index? ``aggarray append``."""

import click

from aggarray.cli._common import bar, json_option, open_source, save, source_argument


@click.command("append")
@click.argument("index")
@source_argument
@json_option
def command(index: str, source: tuple[str, ...], as_json: bool) -> None:
    """Add the files of SOURCE to an INDEX.

    Only new or changed files are read.
    """
    agg = open_source((index,)).append(list(source), progress=bar())
    save(agg, index, as_json, **agg._provenance.how)

"""Command ``aggarray serve``: serve indexes as Zarr stores over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from aggarray.cli import _common as common
from aggarray.errors import printable


@click.command("serve")
@click.argument("indexes", nargs=-1, required=True, metavar="INDEX...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of this machine.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: any free one.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 256), help="The number of processes.")
@click.option(
    "--chunks",
    multiple=True,
    metavar="DIM=SIZE,...",
    help="Sizes of chunks, such as time=30,lat=-1 (-1: all); others are chosen.",
)
@click.option("--compress", metavar="NAME[:LEVEL]", help="Compress chunks by blosc, zlib or zstd.")
@click.option("--max-chunk", default=256, show_default=True, type=click.IntRange(1), help="The largest chunk served, in MB.")
@click.option("--memory", default=256, show_default=True, type=click.IntRange(1), help="MB of chunks read and sent at once.")
@click.option("--cache", default=128, show_default=True, type=click.IntRange(0), help="MB of chunks kept.")
@click.option("--reads", type=click.IntRange(1, 1024), help="Chunks read at once; by default the number of processors.")
@click.option("--quiet", is_flag=True, help="Write no log of requests.")
@common.opening_options
def command(indexes: Sequence[str], host: str, port: int, workers: int, quiet: bool, **arguments: Any) -> None:
    """Serve each INDEX as a read-only Zarr store over HTTP.

    Prints the address of each store. Zarr readers of any language open it, and a browser shows its page. Chunks hold conformed
    values, read from the files when they are asked for. Requests are logged to standard error. SIGTERM and Ctrl-C end the
    server after the requests in progress.
    """
    from aggarray.serve.archives import name_of
    from aggarray.serve.limits import Limits
    from aggarray.serve.server import ServerSettings, serve

    settings = ServerSettings(
        tuple((name_of(index), common.open_arguments({**arguments, "source": [index]})) for index in indexes),
        common.sizes(arguments["chunks"], "--chunks") or None,
        arguments["compress"],
        Limits(
            **({"reads": arguments["reads"]} if arguments["reads"] else {}),
            chunk_bytes=arguments["max_chunk"] << 20,
            memory=arguments["memory"] << 20,
            cache=arguments["cache"] << 20,
        ),
        quiet,
    )

    def announce(bound: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        for name, _ in settings.archives:
            click.echo(f"Serving {printable(name)} at http://{shown}:{bound}/{quote(name)}/")
        sys.stdout.flush()

    serve(settings, host, port, workers, announce)

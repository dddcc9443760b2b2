"""Many clients of a server at once: ``python -m tests.bench.clients [--clients 64] [--seconds 60]``.

Each client reads random chunks of about 1 MB, one after another, over a connection of its own, and compares every byte. Prints
the number of responses, their times, and the peak memory of the server.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np

from tests.bench.layouts import write_layout
from tests.bench.peers import INDEX
from tests.bench.serving import _SIZES, _STEP, start_server

_STEPS = 4


def _digests(index: Path) -> list[bytes]:
    """Return the digest of each chunk, read without the server."""
    import aggarray as aa

    tas = aa.open(index)["tas"]
    blocks = (tas[first : first + _STEPS] for first in range(0, tas.shape[0], _STEPS))
    return [blake2b(_full(block).tobytes()).digest() for block in blocks]


def _full(block: np.ndarray) -> np.ndarray:
    padding = [(0, _STEPS - len(block)), (0, 0), (0, 0)]
    return np.pad(block, padding, constant_values=np.nan) if len(block) < _STEPS else block


async def _client(address: str, digests: Sequence[bytes], seed: int, until: float) -> tuple[list[float], int]:
    """Read chunks until a time; return the seconds of each response, and the number of wrong ones."""
    host, _, rest = address.removeprefix("http://").partition(":")
    port, _, path = rest.partition("/")
    reader, writer = await asyncio.open_connection(host, int(port))
    random, seconds, wrong = np.random.default_rng(seed), [], 0
    while time.perf_counter() < until:
        number = int(random.integers(len(digests)))
        began = time.perf_counter()
        writer.write(f"GET /{path}tas/c/{number}/0/0 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(size)
        seconds.append(time.perf_counter() - began)
        wrong += blake2b(body).digest() != digests[number]
    writer.close()
    return seconds, wrong


async def _clients(address: str, digests: Sequence[bytes], count: int, seconds: float) -> tuple[np.ndarray, int]:
    until = time.perf_counter() + seconds
    results = await asyncio.gather(*(_client(address, digests, seed, until) for seed in range(count)))
    return np.concatenate([times for times, _ in results]), sum(wrong for _, wrong in results)


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def measure(folder: Path, size: str, clients: int, seconds: float) -> str:
    """Return a line of Markdown with the figures."""
    import aggarray as aa

    index = folder / INDEX
    partial(write_layout, layout=_STEP)(folder, _SIZES[size])
    aa.open(folder).save(index)
    digests = _digests(index)
    process, address = start_server(index, "--chunks", f"time={_STEPS}")
    idle = _peak(process.pid)
    times, wrong = asyncio.run(_clients(address, digests, clients, seconds))
    peak, rate = _peak(process.pid), len(times) / seconds
    process.terminate()
    process.wait(60)
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return f"| {clients} | {len(times)} | {wrong} | {rate:.0f} | {p50:.0f} | {p99:.0f} | {idle / 1e6:.0f} | {peak / 1e6:.0f} |"


def main(arguments: list[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    given = parser.parse_args(arguments)
    print("| clients | responses | wrong | per second | p50 ms | p99 ms | memory at start MB | peak MB |")
    print("| --- " * 8 + "|")
    with tempfile.TemporaryDirectory() as folder:
        print(measure(Path(folder), given.size, given.clients, given.seconds), flush=True)


if __name__ == "__main__":
    main()

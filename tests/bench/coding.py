"""Time to read a complete archive in every common compression, and uncompressed.

Data are smaller than in `reading`, since codecs are compared, not layouts. Peers that cannot read a codec are left out.
"""

from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout
from tests.bench.peers import H5PY, H5PY_PLUGINS, HIDEFIX, NETCDF4, readers, whole, write_with_index

_SIZES = {
    "full": {"files": 4, "steps": 120, "lat": 180, "lon": 360},
    "tiny": {"files": 2, "steps": 5, "lat": 8, "lon": 10},
}
_STEP = (1, 180, 360)
_PLAIN = readers(whole, NETCDF4, H5PY, HIDEFIX)
_PLUGINS = readers(whole, NETCDF4, H5PY_PLUGINS)


def _made(options: dict[str, Any], by: str = "netCDF4") -> Layout:
    return Layout(_STEP, options=options, by=by)


def _write_by_plugin(folder: Path, size: Size, name: str) -> None:
    import hdf5plugin

    write_with_index(folder, size, _made({"shuffle": name == "LZ4", **getattr(hdf5plugin, name)()}, "h5py"))


def _benchmark(name: str, title: str, layout: Layout, contestants: tuple[Contestant, ...]) -> Benchmark:
    return Benchmark(name, title, _SIZES, partial(write_with_index, layout=layout), contestants)


BENCHMARKS = (
    _benchmark(
        "codec-deflate-1", "shuffled, deflated at level 1", _made({"zlib": True, "shuffle": True, "complevel": 1}), _PLAIN
    ),
    _benchmark(
        "codec-deflate-9", "shuffled, deflated at level 9", _made({"zlib": True, "shuffle": True, "complevel": 9}), _PLAIN
    ),
    _benchmark("codec-zstd", "shuffled, zstd", _made({"compression": "zstd", "shuffle": True, "complevel": 3}), _PLUGINS),
    _benchmark("codec-blosc", "blosc of lz4", _made({"compression": "blosc_lz4", "blosc_shuffle": 1}), _PLUGINS),
    _benchmark("codec-lzf", "shuffled, LZF", _made({"compression": "lzf", "shuffle": True}, "h5py"), readers(whole, H5PY)),
    Benchmark(
        "codec-lz4",
        "shuffled, LZ4",
        _SIZES,
        partial(_write_by_plugin, name="LZ4"),
        readers(whole, H5PY_PLUGINS),
        needs=("hdf5plugin",),
    ),
    Benchmark(
        "codec-bitshuffle",
        "bitshuffled, LZ4",
        _SIZES,
        partial(_write_by_plugin, name="Bitshuffle"),
        readers(whole, H5PY_PLUGINS),
        needs=("hdf5plugin",),
    ),
    _benchmark("plain-chunked", "chunks as they are", _made({}), _PLAIN),
    _benchmark("plain-contiguous", "no chunks", Layout(), _PLAIN),
    _benchmark("netcdf3", "netCDF-3 classic", Layout(format="NETCDF3_CLASSIC"), readers(whole, NETCDF4)),
    _benchmark(
        "netcdf3-records",
        "netCDF-3 classic, time a record dimension",
        Layout(format="NETCDF3_CLASSIC", record=True),
        readers(whole, NETCDF4),
    ),
    _benchmark(
        "netcdf3-64-records",
        "netCDF-3 with 64-bit offsets, time a record dimension",
        Layout(format="NETCDF3_64BIT_OFFSET", record=True),
        readers(whole, NETCDF4),
    ),
)

"""Layout of a netCDF-3 file, which its header describes completely."""

from __future__ import annotations

from contextlib import closing

from aggarray.formats.base import Structure
from aggarray.formats.netcdf3.format import NetCDF3File
from aggarray.formats.partial_scan import FileLayout, MetadataLayout, VariableLayout


def scan_layout(path: str) -> FileLayout:
    """Return the layout: contiguous variables, or a chunk per record."""
    with closing(NetCDF3File(path)) as file:
        locations = file.header.locations
        variables = {}
        for location in locations:
            shape = location.shape
            index = file.chunks(location.variable.name)
            variables[location.variable.name] = VariableLayout(
                None if location.stored.kind == "S" else location.stored,
                shape,
                None if index is None or index.chunk == shape else index.chunk,
                count=None if index is None else len(index.offsets),
                unlimited=(0,) if location.is_record else (),
            )
        first = min((location.begin for location in locations), default=0)
        structure = Structure(
            path, "netCDF3", file.header.attrs, tuple(location.variable for location in locations), {}, sizes=file.header.sizes
        )
        return FileLayout(path, structure, variables, MetadataLayout(first, 0, True, 0, file.nbytes))

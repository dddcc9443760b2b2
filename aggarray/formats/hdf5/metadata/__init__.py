"""How is the metadata of a netCDF-4 file read without the HDF5 library, and so without its lock?

The modules follow the HDF5 file format specification, version 3.0, from bytes (`data`) up to the conventions of netCDF-4
(`conventions`), to where values are stored (`tables`) and to a few coordinates by name (`glimpses`). They model what ordinary
files hold and nothing else: whatever is not modelled, damaged or doubtful raises `data.UnsupportedError`, and the libraries are
asked instead. Files of an archive are alike byte for byte in most of their messages, so what is parsed is kept, with the bytes
themselves as keys.
"""

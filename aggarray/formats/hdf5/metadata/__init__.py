"""Reader of HDF5 and netCDF-4 metadata without the HDF5 library.

The modules follow the HDF5 file format specification, version 3.0, from bytes (`data`) up to the conventions of netCDF-4
(`attributes`, `dimensions`), to chunk indexes (`chunk_index`) and scans (`scan`). They support the features of ordinary files.
Unsupported and invalid structures raise `data.UnsupportedError`, and the library reads the file instead. Files of an archive
share the bytes of most messages, so parsed messages are cached with their bytes as keys.
"""

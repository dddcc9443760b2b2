"""Recognition of HDF5 files by the signature of their superblock."""

from aggarray.storage.byte_source import open_source

#: First bytes of the superblock.
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def has_signature(path: str, head: bytes) -> bool:
    """Return whether a file is HDF5, perhaps behind a user block."""
    if head.startswith(SIGNATURE):
        return True
    # A folder, or netCDF-3: a user block does not begin like it, so the file is not read again.
    if not head or head.startswith(b"CDF"):
        return False
    with open_source(path) as source:
        at = 512
        while at + len(SIGNATURE) <= source.size:
            if source.pread(len(SIGNATURE), at) == SIGNATURE:
                return True
            at *= 2
    return False

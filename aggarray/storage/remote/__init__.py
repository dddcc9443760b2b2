"""Files on web servers, in object stores and in archives.

`urls` parses addresses, `credentials` holds which addresses may be read with which options, `filesystems` finds the fsspec file
system, `requests` fetches many byte ranges concurrently, `objects` keeps states, `reader` reads values and cached metadata,
`listing` lists folders and patterns. No other module talks to fsspec, which is imported with the first address.
"""

from aggarray.storage.remote.credentials import RemoteAccess, StorageOptions, access_in_force, in_threads, with_access
from aggarray.storage.remote.listing import expand, folders_in, has_magic
from aggarray.storage.remote.objects import forget, prefetch_states, status
from aggarray.storage.remote.reader import READY, ObjectFile, RemoteSource, fetch_pieces
from aggarray.storage.remote.requests import fetch_object, fetch_objects
from aggarray.storage.remote.urls import below, canonical, carrier, is_below, is_remote, join, origin, parent, resolve

__all__ = [
    "READY",
    "ObjectFile",
    "RemoteAccess",
    "RemoteSource",
    "StorageOptions",
    "access_in_force",
    "below",
    "canonical",
    "carrier",
    "expand",
    "fetch_object",
    "fetch_objects",
    "fetch_pieces",
    "folders_in",
    "forget",
    "has_magic",
    "in_threads",
    "is_below",
    "is_remote",
    "join",
    "origin",
    "parent",
    "prefetch_states",
    "resolve",
    "status",
    "with_access",
]

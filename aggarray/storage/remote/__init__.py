"""How are files read that lie elsewhere: on a web server, in an object store, in an archive?

`urls` says what an address means, `reach` which addresses may be gone to and with which credentials, `systems` finds the file
system of fsspec for one, `fetching` gets many byte ranges at once, `objects` tells what an object is like and reads it in
blocks, `listing` finds what a folder or a pattern names. No other module talks to fsspec, which is imported with the first
address that is opened.
"""

from aggarray.storage.remote.conditional import changed
from aggarray.storage.remote.credentials import RemoteAccess, StorageOptions, current_access, in_threads, with_access
from aggarray.storage.remote.listing import expand, folders_in, has_magic
from aggarray.storage.remote.objects import READY, ObjectFile, ObjectState, forget, open_object, prefetch_states, status
from aggarray.storage.remote.reader import RemoteSource, read_pieces
from aggarray.storage.remote.requests import RangeRequest, fetch, fetch_object, fetch_objects
from aggarray.storage.remote.urls import below, canonical, carrier, is_below, is_remote, join, origin, parent, resolve

__all__ = [
    "READY",
    "ObjectFile",
    "ObjectState",
    "RangeRequest",
    "RemoteAccess",
    "RemoteSource",
    "StorageOptions",
    "below",
    "canonical",
    "carrier",
    "changed",
    "current_access",
    "expand",
    "fetch",
    "fetch_object",
    "fetch_objects",
    "folders_in",
    "forget",
    "has_magic",
    "in_threads",
    "is_below",
    "is_remote",
    "join",
    "open_object",
    "origin",
    "parent",
    "prefetch_states",
    "read_pieces",
    "resolve",
    "status",
    "with_access",
]

"""Files on web servers, in object stores and in archives.

`filesystems` finds the fsspec file system, `requests` fetches many byte ranges concurrently, `objects` keeps states, `reader`
reads values and cached metadata, `listing` lists folders and patterns. No other module talks to fsspec. They are imported with
the first address; `storage.urls` and `storage.credentials` serve local files too.
"""

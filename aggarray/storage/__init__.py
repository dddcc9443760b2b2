"""Reading, atomic writing, locking and caching of files and objects."""

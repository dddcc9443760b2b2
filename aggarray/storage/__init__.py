"""Bytes of files and objects, local or remote: reading, writing atomically, locking, caching, access control."""

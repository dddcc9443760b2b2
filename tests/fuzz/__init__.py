"""Fuzz targets of the readers of aggarray. `python -m tests.fuzz` lists them."""

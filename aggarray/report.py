"""HTML page of an aggregation: `page` returns it, `write` writes it."""

from aggarray.display.report import page, write

__all__ = ["page", "write"]

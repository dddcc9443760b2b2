"""HTML page of an aggregation: `page` returns its text, `write` writes it to a file."""

from aggarray.display.report import page, write

__all__ = ["page", "write"]

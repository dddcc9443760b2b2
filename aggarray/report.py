"""HTML page of an aggregation: `page` returns it, `write` writes it."""

from __future__ import annotations

from aggarray.display.report import page, write

__all__ = ["page", "write"]

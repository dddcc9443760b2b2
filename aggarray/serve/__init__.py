"""HTTP server of aggregations as Zarr stores: `app` is the application.

Needs the extra ``serve``. ``aggarray serve`` runs it by uvicorn.
"""

from __future__ import annotations

from aggarray.errors import AggregationError, install_command

try:
    from aggarray.serve.application import app
except ImportError as error:
    raise AggregationError(f"aggarray.serve needs starlette: {error}", hint=install_command("serve")) from error

__all__ = ["app"]

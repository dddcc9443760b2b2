"""Command ``aggarray`` as ``python -m aggarray.cli``."""

from __future__ import annotations

from aggarray.cli import main

if __name__ == "__main__":
    main()

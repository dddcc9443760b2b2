"""Entry point of ``python -m aggarray``, equal to ``aggarray``."""

from __future__ import annotations

from aggarray.cli import main

if __name__ == "__main__":
    main()

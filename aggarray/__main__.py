"""Entry point of ``python -m aggarray``, equal to ``aggarray``."""

from aggarray.cli import main

if __name__ == "__main__":
    main()

"""Command ``aggarray`` as ``python -m aggarray.cli``."""

from aggarray.cli import main

if __name__ == "__main__":
    main()

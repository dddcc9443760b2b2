"""What does ``python -m aggarray`` do? The same as the command ``aggarray``."""

from aggarray.cli import main

if __name__ == "__main__":
    main()

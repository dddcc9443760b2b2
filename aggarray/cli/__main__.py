"""What does ``python -m aggarray.cli`` do? The same as the command ``aggarray``."""

from aggarray.cli import main

if __name__ == "__main__":
    main()

"""What do the readers of aggarray make of input that nobody meant to write? `python -m tests.fuzz` lists the targets."""

"""Master arrays, sub-arrays, and the sections of processes."""

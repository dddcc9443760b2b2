"""The digest BLAKE2b without ``hashlib``, which loads OpenSSL in 3 ms."""

from __future__ import annotations

try:
    from _blake2 import blake2b as blake2b
except ImportError:  # other interpreters
    from hashlib import blake2b as blake2b

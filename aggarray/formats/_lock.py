"""Who may call into HDF5 or netCDF-C? One thread at a time: neither library is safe under threads."""

import os
import threading

#: Held around every call into HDF5 or netCDF-C.
LIBRARY_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child made while another thread is inside a library would wait for that thread for ever.
    os.register_at_fork(before=LIBRARY_LOCK.acquire, after_in_parent=LIBRARY_LOCK.release, after_in_child=LIBRARY_LOCK.release)

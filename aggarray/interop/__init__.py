"""Master arrays in other libraries: dask, xarray, and the pickled form."""

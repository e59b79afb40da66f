"""Data sets that are made here, without a download: :mod:`gradewise.data.jets`."""

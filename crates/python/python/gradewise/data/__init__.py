"""Data sets that are made here, without a download: :mod:`gradewise.data.jets`, :mod:`gradewise.data.molecules`."""

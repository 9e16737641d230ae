"""Densities of known log Z, and who is silently wrong on them: see `zoo.py`."""

"""Models: what `annealax.sample` samples, written here or elsewhere.

`base.py` is the contract; `plain.py` functions of JAX, and one file for each system of
others. Importing this package imports none of these systems.
"""

"""Numba kernels for a CPU; torch calls them through the public operations beside this folder."""

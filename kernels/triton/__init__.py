"""Triton kernels for a GPU; torch calls them through the public operations beside this folder."""

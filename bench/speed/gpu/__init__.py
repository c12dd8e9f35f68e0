"""Measurements that need an NVIDIA GPU."""

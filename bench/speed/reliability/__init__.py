"""Faults on purpose: hostile files, killed processes, long work, many clients; and their outcomes."""

"""What goes wrong on purpose: hostile files, killed processes, long work, many clients; and what becomes of it."""

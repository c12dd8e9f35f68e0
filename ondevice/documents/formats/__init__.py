"""One file a format: bytes to pages, in the limited child process."""

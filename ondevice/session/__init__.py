"""The engine and its sessions, and where they are kept."""

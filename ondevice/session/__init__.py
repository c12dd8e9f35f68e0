"""The engine and its sessions, and how they are saved."""

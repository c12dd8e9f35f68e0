"""Memory and speed of a session before it begins, and what is measured once for a model on this machine."""

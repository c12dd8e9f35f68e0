"""The limited child process that parses files, and how its parent talks to it."""

"""From a name to weights in memory."""

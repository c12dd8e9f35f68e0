"""The small model that reads first."""

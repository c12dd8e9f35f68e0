"""Host memory for what the pot evicts."""

"""The data plane in one process: write kernel, scan, entities."""

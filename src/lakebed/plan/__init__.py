"""From a view to the data files that it must read."""

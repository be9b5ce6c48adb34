"""Planning: the data files that a view must read."""

"""Inverted indices: values of a column to the data files that hold them."""

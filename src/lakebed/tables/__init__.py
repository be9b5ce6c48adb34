"""Tables and trees of other tools over the files of a dataset: written, kept in step, and adopted."""

"""Groups of calls of a dataset, by subject: `dataset.indices`, `dataset.staged` and others."""

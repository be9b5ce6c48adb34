"""Values without I/O: schemas, partition functions, predicates, names and keys."""

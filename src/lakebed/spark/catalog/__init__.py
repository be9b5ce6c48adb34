"""A catalog of Spark for a repository: its interfaces are implemented by Python objects."""

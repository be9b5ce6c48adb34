"""SQL on the datasets of a repository: queries by DuckDB, and statements that change rows."""

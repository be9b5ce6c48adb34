"""Files of other tools, read in: CSV, JSON lines, submissions, Avro, Parquet."""

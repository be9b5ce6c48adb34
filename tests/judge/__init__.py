"""S3 behind a proxy that fails, and one judge for all that write there."""

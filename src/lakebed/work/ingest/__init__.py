"""The engine under `Dataset.load` and `Ingest`: raw files become one batch, and a quarantine."""

"""Engine of `Dataset.load` and `Ingest`: raw files become one batch, and a quarantine."""

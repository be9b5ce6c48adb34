"""File formats: how one data file is written and read. `registry` finds them by name."""

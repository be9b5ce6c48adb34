"""File formats: how one data file is written and read. `file_format` finds them by name."""

"""Tables and trees of other tools: publish datasets to them, and adopt them."""

"""The state of a dataset: head, file table, history, and the transaction that changes them."""

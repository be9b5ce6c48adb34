"""The head of a dataset of very many files: a root, and immutable leaves that hold the files.

The design and its rules are in docs/design/012-tree-head.md, the bytes in docs/format.md. All
modules but `find` are without I/O.
"""

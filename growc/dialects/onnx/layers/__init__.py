"""Edits of a file's layers: copied, dropped, put in another order, renamed."""

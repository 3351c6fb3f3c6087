"""Edits of a file's feed-forward networks: mixtures of experts in their place."""

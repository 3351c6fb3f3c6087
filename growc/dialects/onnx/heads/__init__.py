"""Edits of a file's attention heads: inserted repeats, packed projections taken apart."""

"""Edits of a file's heads: repeats put in, packed projections cut apart."""

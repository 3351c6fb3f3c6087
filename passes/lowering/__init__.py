"""Lowering of statements to index maps on spaces, and to a new order of layers."""

"""Lowering rules for ATen operators."""

"""Sizes, element types and known values of every tensor, at a few sample points."""

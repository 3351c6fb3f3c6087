"""Puts results in place: all of them or none."""

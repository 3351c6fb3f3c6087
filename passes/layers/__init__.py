"""Runs of equal layers, what goes around them, and which layer of the source each one is."""

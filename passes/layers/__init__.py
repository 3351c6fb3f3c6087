"""Runs of equal layers, the residual streams around them, and the source layer of each layer."""

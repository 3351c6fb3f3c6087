"""Calls modules: their signatures, inputs to draw, outputs."""

"""Formats of models: each gives the passes a neutral graph, and executes plans."""

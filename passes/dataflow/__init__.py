"""Dataflow through a graph: reachability, the places of elements, and the ranges of numbers."""

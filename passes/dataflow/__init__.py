"""Follows values through a graph: what reaches what, which element stands where, between which bounds."""

"""Modules in Python: grown, run beside their source, and held against the plan."""

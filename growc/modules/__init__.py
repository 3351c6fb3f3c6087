"""Growth of modules in Python: growing, comparison with the source, comparison with the plan."""

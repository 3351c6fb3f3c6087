"""Plans as pure data: the steps of each weight, and their execution."""

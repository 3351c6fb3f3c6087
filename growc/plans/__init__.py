"""Plans as pure data: what becomes of each weight, and how that is executed."""

"""Budgets instead of sizes: searches the sizes of axes that meet a budget, and says them as plain statements."""

"""Budgets instead of sizes: find sizes of axes that meet a budget, and write them as plain statements."""

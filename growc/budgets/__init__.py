"""Budgets instead of sizes: finds sizes of axes that meet a budget, and says them as plain statements."""

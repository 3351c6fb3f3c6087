"""What a report shows of a growth, as plain data (growc.render.page draws it)."""

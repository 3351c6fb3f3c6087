"""The contents of a report on a growth, as plain data; growc.render.page draws it."""

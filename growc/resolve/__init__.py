"""From parsed statements to a flat list: includes, `let`, checks, `match`; and recipes built in Python."""

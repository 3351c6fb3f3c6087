"""The flat list of statements: includes, `let`, checks and `match` resolved; and recipes built in Python."""

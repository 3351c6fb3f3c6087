"""States of all tensors, statement by statement: constraints, rules that solve them, steps for weights."""

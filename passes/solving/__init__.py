"""The states of all tensors, one statement at a time: constraints, their rules, the steps of weights."""

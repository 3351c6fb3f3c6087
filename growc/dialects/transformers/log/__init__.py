"""Operator logs of classes, from which weights compensate for values that a config decides."""

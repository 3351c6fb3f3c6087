"""Adaptation of shape operands and attributes to the sizes of the result."""

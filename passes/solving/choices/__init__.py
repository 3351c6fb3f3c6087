"""Choices of experts from copies, and the factors of the shares that weigh them."""

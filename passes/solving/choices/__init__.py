"""Choices of experts from copies: what becomes of the shares that weigh them."""

"""Emission of a plan as a trainable module of `torch.fx` graphs."""

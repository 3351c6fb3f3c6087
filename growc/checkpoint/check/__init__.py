"""Runs a checkpoint directory and its result, and compares their outputs."""

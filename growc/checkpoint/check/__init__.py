"""Run a checkpoint directory and its result, and compare their outputs."""

"""Runs of source and result in onnxruntime, and judgement of the difference by their own rounding."""

"""Runs source and result in onnxruntime and judges the difference against the models' own rounding."""

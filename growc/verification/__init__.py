"""Runs of source and result in onnxruntime, and judgement of the difference against the models' own
rounding.
"""

"""Checkpoint directories of Hugging Face. Tensors are read by name and written one by one; the directory is
put in place whole.
"""

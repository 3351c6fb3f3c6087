"""A dense checkpoint in the class of a mixture of experts: config, tensors, and a check of the
computation.
"""

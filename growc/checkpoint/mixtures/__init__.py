"""A dense checkpoint in the class of a mixture: its config, its tensors, and whether it computes the same."""

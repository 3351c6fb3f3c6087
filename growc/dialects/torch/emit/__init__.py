"""From a plan to a module of `torch.fx` graphs that trains."""

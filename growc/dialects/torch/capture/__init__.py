"""From a module to a functional program of torch.export."""

"""torch: modules, checkpoints and programs, captured by torch.export."""

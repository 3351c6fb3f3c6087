"""Index spaces: one for each axis of each tensor, unified along every operator's line."""

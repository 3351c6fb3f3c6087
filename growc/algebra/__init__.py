"""Index maps and spaces: pure mathematics on numpy, with no graph and no model."""

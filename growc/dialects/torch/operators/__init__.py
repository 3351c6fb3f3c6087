"""Everything that growc knows of an ATen operator: how each is lowered."""

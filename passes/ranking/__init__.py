"""Which units and layers are chosen: by magnitude, by measured importance, by order."""

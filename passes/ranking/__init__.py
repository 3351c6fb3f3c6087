"""Selection of units and layers: by magnitude, by measured importance, by order."""

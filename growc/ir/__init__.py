"""The neutral graph, and the notation for the effect of operators on axes."""

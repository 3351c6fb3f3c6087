"""The neutral graph, and the notation in which an operator's row says what it does to axes."""

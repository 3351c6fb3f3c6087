"""Training a result: its parameters in groups, and the state of an optimizer carried along."""

"""Feed-forward networks that become mixtures of experts, each a copy of the network."""

"""Loading and building of programs in `.pt2` files."""

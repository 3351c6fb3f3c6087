"""Programs in `.pt2` files: read, and built anew."""

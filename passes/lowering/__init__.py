"""From statements to maps on spaces, and to layers in their new order."""

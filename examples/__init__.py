"""Published recipes: the wheel has their texts, and the small files that they read, as growc.examples."""

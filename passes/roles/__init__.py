"""Names for spaces by structure alone: hidden, heads, ffn, vocab and the others."""

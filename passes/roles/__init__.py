"""Roles: names for spaces, found by structure alone (hidden, heads, ffn, vocab and others)."""

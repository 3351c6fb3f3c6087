"""Diagnostics with codes, and shared basics: sources, JSON, printable text, regular files."""

"""Diagnostics with codes, and what every floor stands on: sources, JSON, printable text, regular files."""

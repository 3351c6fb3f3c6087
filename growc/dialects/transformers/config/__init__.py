"""Searches the config of a class that has planned sizes."""

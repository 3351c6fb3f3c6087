"""Finds the config of a class that stores a planned result, and its weights by the names of the class."""

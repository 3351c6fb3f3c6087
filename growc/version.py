"""The version of growc."""

__version__ = "0.1.0"

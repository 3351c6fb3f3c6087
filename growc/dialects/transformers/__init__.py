"""Support for classes of transformers: the fields of a config that decide sizes."""

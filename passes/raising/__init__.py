"""Patterns that raise a spelling to a form: the only place outside the dialects that names operators."""

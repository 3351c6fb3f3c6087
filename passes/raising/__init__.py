"""Patterns that raise spellings to one form: the only place outside the dialects that names operators."""

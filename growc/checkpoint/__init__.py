"""Checkpoint directories of Hugging Face: read by name, written tensor by tensor, put in place whole."""

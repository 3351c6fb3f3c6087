"""Readers and writers of a checkpoint's files: safetensors, shards, pickles, adapters."""

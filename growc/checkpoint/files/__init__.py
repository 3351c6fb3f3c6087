"""Reads and writes the files of a checkpoint: safetensors, shards, pickles, adapters."""

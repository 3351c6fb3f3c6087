"""Classes of transformers, which a config builds: which fields decide which sizes."""

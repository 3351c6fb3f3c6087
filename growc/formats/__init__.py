"""Forms of models on disk: how each is opened, compiled, written, verified, and what its records say."""

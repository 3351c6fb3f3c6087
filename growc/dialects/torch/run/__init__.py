"""Running of modules: their signatures, drawn inputs, outputs."""

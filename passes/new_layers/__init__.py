"""New layers: whether one with zero outputs adds nothing where it stands."""

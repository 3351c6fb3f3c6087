"""New layers: whether one with zero outputs adds nothing where it stands; what is drawn in others."""

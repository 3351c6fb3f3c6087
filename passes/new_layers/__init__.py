"""New layers: whether layers with zero outputs add nothing in their place, and the random weights of
others.
"""

"""Records how a class computes, to make up in weights for values that a config decides."""

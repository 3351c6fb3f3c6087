"""Values that would break a claim: poles beside zeros, jumps, numbers below zero, casts to fewer digits."""

"""Accounts for every size of the result: shape operands and attributes that change."""

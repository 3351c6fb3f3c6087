"""Checks for values that make a result inexact: poles, jumps, negative numbers, casts to fewer digits."""

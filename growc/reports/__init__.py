"""Measurements for people: the loss before and after, profiles of layers, scores."""

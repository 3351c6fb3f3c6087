"""Measurement of importance: how much each unit and each layer adds, on calibration data."""

"""The forms of models on disk: how each is opened, compiled, written and verified, and where its
records are.
"""

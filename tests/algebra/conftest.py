"""Hypothesis for all property tests of this folder: no deadlines, and the same examples in CI."""

import os

from hypothesis import settings

settings.register_profile("algebra", deadline=None, max_examples=120, derandomize="CI" in os.environ)
settings.load_profile("algebra")

"""How hypothesis searches in the tests of the language."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("language", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("language")

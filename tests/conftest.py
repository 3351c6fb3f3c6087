"""Fixtures that several folders of tests share."""

from __future__ import annotations

import pytest
from models import Models, digest


@pytest.fixture(scope="session")
def models(request: pytest.FixtureRequest) -> Models:
    """Small exported models; kept between sessions for as long as nothing that makes them changes."""
    return Models(request.config.cache.mkdir(f"growc-models-{digest()}"))

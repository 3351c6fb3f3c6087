"""A certificate as lines of text: exact, or every gap with its cause."""

from __future__ import annotations

from collections.abc import Iterator

from growc.plans.plan import Certificate
from growc.render.text import table
from growc.verification.judge import by_cause


def certificate_lines(certificate: Certificate) -> Iterator[str]:
    """Yield that the result is exact, or every gap by cause."""
    if certificate.exact:
        yield "Certificate: exact. The result computes what the source computes."
        return
    yield "Certificate: not exact."
    groups = by_cause(certificate.gaps)
    yield from (f"  gap  {line}" for line in table(groups[:10]))
    if len(groups) > 10:
        yield f"  … {len(groups) - 10} more causes (--json)"
    yield from (f"  help: {remedy}" for remedy in dict.fromkeys(g.help for g in certificate.gaps if g.help))

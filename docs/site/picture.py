"""The picture of the front page: where the heads of the first layer come from, as a report draws them.

python docs/site/picture.py > docs/growth.svg
"""

from __future__ import annotations

import re
from pathlib import Path

from growc import api
from growc.render.page.html import page_text
from growc.reports.page.page import growth_of, page_of

ROOT = Path(__file__).resolve().parents[2]
RECIPE, MODEL = ROOT / "examples/demo.grow", ROOT / "examples/models/tiny-gpt.onnx"

STYLE = """<style>
text { fill: #57606a; font: 12px system-ui, sans-serif; }
.inside { fill: #000; text-anchor: middle; font-size: 11px; }
.middle { text-anchor: middle; }
.bar, .kept { fill: #6e8fb5; } .copy { fill: #d9822b; }
.bar { fill-opacity: 0.35; } polygon { fill-opacity: 0.3; } rect { stroke: #f6f8fa; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #9da7b1; } .middle { fill: #e6edf3; } }
</style>"""


def picture() -> str:
    """The drawing of the heads of the demo, as a file of its own."""
    page = page_of(MODEL, (), growth_of(api.compile(api.recipe(RECIPE), MODEL)))
    drawings = re.findall(r"<svg.*?</svg>", page_text(page), re.S)
    drawing = next(one for one in drawings if 'aria-label="heads' in one)
    drawing = re.sub(
        r'<text class="tip".*?</text>| (?:tabindex|role)="[^"]*"|<title>.*?</title>', "", drawing
    )
    drawing = re.sub(r'<g class="unit" aria-label="[^"]*">', "<g>", drawing)
    opening, rest = drawing.split(">", 1)
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" role="img" ')
    return f"{opening}>\n{STYLE}{rest}\n".replace(
        'viewBox="0 0 640 146"', 'width="640" viewBox="0 0 640 112"'
    )


if __name__ == "__main__":
    print(picture(), end="")

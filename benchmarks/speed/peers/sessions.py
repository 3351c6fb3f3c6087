"""Both models in onnxruntime, loaded and run on growc's inputs: what no verification can do without.

python sessions.py SOURCE.onnx RESULT.onnx
"""

import sys
from pathlib import Path

from growc.dialects.onnx.files.signature import read_signature
from growc.verification.feeds import draw
from growc.verification.ort_session import Session

source, result = map(Path, sys.argv[1:])
with Session(source) as session:
    cases = draw(read_signature(source), session)
    for case in cases:
        session.run(case)
with Session(result) as session:
    for case in cases:
        session.run(case)

"""ONNX files as onnxruntime runs them: their inputs, their bodies, and copies of them in other types."""

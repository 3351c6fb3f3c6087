"""ONNX files as onnxruntime runs them: their inputs, their bodies, and copies in other element types."""

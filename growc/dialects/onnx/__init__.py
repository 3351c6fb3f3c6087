"""ONNX: files, the operator table, simulation, emission."""

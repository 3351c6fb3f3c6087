"""From a file in onnx-ir to the neutral graph: one weight one use, fused operators taken apart."""

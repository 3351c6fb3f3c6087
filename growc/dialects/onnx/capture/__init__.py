"""Translation of an onnx-ir model into the neutral graph: one use per weight, fused operators taken apart."""

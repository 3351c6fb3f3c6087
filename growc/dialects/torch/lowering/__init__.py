"""Lowering of torch.export programs to the ONNX vocabulary, so that semantics are written once."""

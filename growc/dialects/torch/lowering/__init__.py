"""From a program of torch.export to the ONNX vocabulary, so that meaning is written once."""

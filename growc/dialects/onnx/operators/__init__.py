"""Everything that growc knows of an ONNX operator: its row in `table`, and the rules that the row names."""

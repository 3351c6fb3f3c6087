"""The plan, made from steps: stored tensors, tables, inputs and outputs, the certificate and its warnings."""

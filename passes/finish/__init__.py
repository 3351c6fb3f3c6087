"""From steps to a plan: stored tensors, tables, inputs and outputs, the certificate and its warnings."""

"""Results as growc shows them: lines of text for people, plain data for programs."""

"""What growc shows: to a person as lines of text, to a program as plain data."""

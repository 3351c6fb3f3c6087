"""What an editor shows of a recipe as it is written: the language server, and the colours of words."""

"""Editor support for recipes: the language server, and the colours of words."""

"""The command line: `main` runs a command, `arguments` defines the options."""

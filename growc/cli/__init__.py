"""The command line: `main` is the command, `arguments` its options."""

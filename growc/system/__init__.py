"""What growc asks of the system beside reading and writing: folders of its own, locks, signals."""

"""Services of the system other than reading and writing: folders of growc's own, locks, signals."""

"""Training of results: parameter groups, carried optimizer state, schedules, and methods of papers."""

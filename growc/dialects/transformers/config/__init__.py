"""Search for the config with which a class has the planned sizes."""

"""Put results in place: all of them or none."""

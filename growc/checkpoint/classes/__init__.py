"""The config of a class that stores a planned result, and the result's weights by the names of the class."""

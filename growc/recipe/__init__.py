"""The meaning of a recipe as data: statements, and the tables of fills, rankings, orders and options."""

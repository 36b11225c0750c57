"""Vectors, and the independent implementations that wrote them."""

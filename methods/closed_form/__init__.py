"""Methods whose head follows from one sum in closed form."""

"""What the source files must look like, and the scripts that write generated files."""

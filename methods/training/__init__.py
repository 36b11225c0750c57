"""Methods that train one model in rounds."""

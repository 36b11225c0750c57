"""What an audit found, for people and machines: JSON, SARIF, CSV, one HTML page, lines for a terminal, and the gate."""

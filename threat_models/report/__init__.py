"""Reports of an audit, for people and machines: JSON, SARIF, one HTML page, lines for a terminal, and the gate."""

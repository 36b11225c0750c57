"""Reports of an audit, for people and machines: JSON, SARIF, one HTML page, text for a terminal; the pass/fail gate."""

"""Studies: a configuration file and result files each. Run them from the repository root."""

"""Studies, each a configuration file and its result files. Run them from the root of the repository."""

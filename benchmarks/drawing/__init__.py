"""What ``benchmarks.pictures`` draws: in each module, functions that read records and functions that draw on Axes."""

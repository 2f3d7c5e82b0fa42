"""The tables of README.md and RESULTS.md, made from the result files. Nothing here needs torch."""

"""A seeded fuzzer of settings, texts, files and saved artefacts; ``python -m tests.fuzz`` prints it."""

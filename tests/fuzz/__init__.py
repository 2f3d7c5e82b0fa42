"""A seeded fuzzer of settings, texts, files, saved artefacts and command lines; ``python -m tests.fuzz`` prints it."""

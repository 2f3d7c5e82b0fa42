"""Bad settings, texts, files, artefacts and command lines, drawn by hypothesis: ``pytest tests/fuzz -m weekly``."""

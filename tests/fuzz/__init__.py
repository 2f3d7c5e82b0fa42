"""Bad settings, texts, files, saved artefacts and command lines as hypothesis strategies; ``python -m tests.fuzz``."""

"""``python -m st_extras.cli``, the same as ``st-extras``."""

from st_extras.cli import main

main()

"""The short study of the papers in one of two processes, which test_papers.py starts."""

import sys
from pathlib import Path

from benchmarks import papers
from benchmarks.studies import Options
from tests.benchmarks.test_papers import short_study
from tests.helpers import end_process

if __name__ == "__main__":
    papers.PATIENCE = 0.0
    folder, *methods = sys.argv[1:]
    options = Options(Path("hub"), Path(folder, "work"), Path(folder, "results"), methods=methods, seeds=[0])
    papers.run(short_study(), options)
    end_process()

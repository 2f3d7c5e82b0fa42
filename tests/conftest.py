"""What pytest reads first. The fixtures are in tests/fixtures.py."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, and torch with them, but not in the process that only hands the tests of ``-n`` out."""
    if config.getoption("dist", "no") == "no":
        from tests import fixtures

        config.pluginmanager.register(fixtures)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let an idle process take tests from a busy one: the slow ones stand together in their files."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)

import nltk
import pytest

from st_extras.text import eda, phrases


@pytest.fixture(autouse=True)
def no_nltk_data(monkeypatch):
    """Let a test see only the NLTK data that it writes, whatever is installed on this machine."""
    monkeypatch.setattr(nltk.data, "path", [])
    phrases._perceptron_tagger.cache_clear()
    eda._wordnet.cache_clear()


@pytest.fixture
def tokenizer(encoder):
    return encoder.tokenizer

"""Text preparation without models: corpora, token counts, keywords, phrases, phrase masking and augmentation."""

from st_extras.text.corpus import read_sentences, stream_sentences
from st_extras.text.eda import EDA
from st_extras.text.keywords import JiebaKeywords, RakeKeywords, TfidfKeywords
from st_extras.text.phrase_masking import PhraseMasking
from st_extras.text.phrases import ChunkPhrases, PhraseExtractor, RakePhrases

__all__ = [
    "EDA",
    "ChunkPhrases",
    "JiebaKeywords",
    "PhraseExtractor",
    "PhraseMasking",
    "RakeKeywords",
    "RakePhrases",
    "TfidfKeywords",
    "read_sentences",
    "stream_sentences",
]

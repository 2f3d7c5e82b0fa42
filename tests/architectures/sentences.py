"""The sentences that the tokenizers are made from and the methods are tried on."""

SENTENCES = [
    "a cat sat on the mat",
    "the dog ran in the park",
    "two birds sing near a river",
    "the old man read a red book",
]
"""The batch: of different lengths, so that all but the longest are padded."""
PHRASES = ["mat", "dog", "two birds", "red book"]
"""A phrase of each, for PaSeR."""
MORE = [
    "a woman walks slowly to the market",
    "children play football in the rain",
    "the train leaves early every morning",
    "he cooks soup with fresh carrots",
    "rain fell on the old market all morning",
    "she sings to the birds in the park",
    "a red train leaves the station in the rain",
    "the children read books near the river",
]
CORPUS = [*SENTENCES, *MORE, "query: a cat", "query: the dog", "cat", "dog"] * 9

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import nltk
import pytest
from nltk.tag import PerceptronTagger

from st_extras.text import ChunkPhrases, PhraseMasking

TAGGED = [
    "the/DT old/JJ man/NN read/VBD a/DT red/JJ book/NN ./.",
    "a/DT dog/NN ran/VBD in/IN the/DT park/NN ./.",
    "she/PRP slept/VBD because/IN the/DT cat/NN sat/VBD on/IN the/DT mat/NN ./.",
    "he/PRP can/MD cook/VB soup/NN with/IN fresh/JJ carrots/NNS ./.",
]


@pytest.fixture(scope="module")
def tagger() -> PerceptronTagger:
    tagger = PerceptronTagger(load=False)
    tagger.train([[tuple(token.rsplit("/", 1)) for token in line.split()] for line in TAGGED * 5])
    return tagger


def chunks(sentence: str, extractor: ChunkPhrases) -> set[str]:
    return {sentence[start:end] for start, end in extractor(sentence)}


def test_chunks_of_a_trained_tagger(tagger: PerceptronTagger) -> None:
    sentence = "the old man read a red book."
    assert chunks(sentence, ChunkPhrases(kinds=["NP"], tagger=tagger.tag)) == {"the old man", "a red book"}
    assert chunks(sentence, ChunkPhrases(kinds=["VP"], tagger=tagger.tag)) == {"read a red book"}
    clause = "she slept because the cat sat on the mat ."
    assert "because the cat sat" in chunks(clause, ChunkPhrases(kinds=["SBAR"], tagger=tagger.tag))
    assert ChunkPhrases(tagger=tagger.tag)("") == []
    own = ChunkPhrases(kinds=["THING"], grammar="THING: {<JJ><NN>}", tagger=tagger.tag)
    assert chunks(sentence, own) == {"old man", "red book"}
    rows = PhraseMasking(ChunkPhrases(kinds=["NP"], tagger=tagger.tag))([sentence])
    assert set(rows["masked"]) == {
        "[MASK] [MASK] [MASK] read a red book.",
        "the old man read [MASK] [MASK] [MASK].",
    }


def test_the_default_tagger_from_its_files(
    tagger: PerceptronTagger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    folder = tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    folder.mkdir(parents=True, mode=0o700)
    tagger.save_to_json(lang="eng", loc=str(folder))
    extractor = ChunkPhrases(kinds=["NP"])
    assert chunks("a dog ran in the park.", extractor) == {"a dog", "the park"}
    assert pickle.loads(pickle.dumps(extractor))("a dog ran") == [(0, 5)]


def test_the_order_of_chunks_is_drawn_from_the_seed(tagger: PerceptronTagger) -> None:
    sentence = "the old man read a red book."
    firsts = {ChunkPhrases(tagger=tagger.tag, seed=seed)(sentence)[0] for seed in range(20)}
    assert len(firsts) == 3
    again = [ChunkPhrases(tagger=tagger.tag, seed=7)(sentence) for _ in range(2)]
    assert again[0] == again[1]


def test_subtrees_of_a_given_parse() -> None:
    sentence = 'John said "(maybe) he won\'t come".'
    tree = """(S (NP-SBJ John) (VP said (`` ``) (-LRB- -LRB-) (ADVP maybe) (-RRB- -RRB-)
              (SBAR (S (NP he) (VP (MD wo) (RB n't) (VP come)))) ('' '')) (. .))"""
    parse = {sentence: nltk.Tree.fromstring(tree)}.__getitem__
    assert chunks(sentence, ChunkPhrases(parse=parse)) == {
        "John", "he", "come", "won't come", 'said "(maybe) he won\'t come',
    }  # fmt: skip
    rows = PhraseMasking(ChunkPhrases(kinds=["SBAR"], parse=parse))([sentence])
    assert rows["masked"] == ['John said "(maybe) [MASK] [MASK] [MASK]".']
    with pytest.raises(ValueError, match="tree of the sentence 'John', got the token 'Mary'"):
        ChunkPhrases(parse=lambda _: nltk.Tree.fromstring("(S (NP Mary))"))("John")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ChunkPhrases(kinds="NP"), r"kinds must be .* got the string 'NP'"),
        (lambda: ChunkPhrases(kinds=(), parse=str), r"kinds must be .* got \(\)"),
        (lambda: ChunkPhrases(tagger=list, parse=str), r"tagger and parse"),  # type: ignore[arg-type]
        (lambda: ChunkPhrases(grammar="NP: <DT", parse=str), r"grammar must be .* got 'NP: <DT'"),
        (lambda: ChunkPhrases(), r"nltk\.downloader averaged_perceptron_tagger_eng"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()

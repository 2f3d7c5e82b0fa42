"""Prompts of queries and documents, whatever an encoder calls them."""

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders import load_encoder
from st_extras.encoders.prompts import encode_as, other_prompt


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"search_query": "q: ", "search_document": "d: "}, ("q: ", "d: ")),
        ({"query": "q: ", "passage": "p: ", "corpus": "c: "}, ("q: ", "p: ")),
        ({"query": "q: ", "s2p_query": "s: ", "document": "d: ", "doc": "e: "}, ("q: ", "d: ")),
        ({"s2p_query": "a: ", "s2s_query": "b: "}, ("", "")),
        ({"s2p_query": "a: ", "s2s_query": "a: "}, ("a: ", "")),
        ({"clustering": "c: ", "queryless": "x: "}, ("", "")),
    ],
)
def test_a_loaded_encoder_has_them_under_the_names_of_the_library(encoder, tmp_path, prompts, expected):
    encoder.prompts = prompts
    encoder.save(str(tmp_path / "e"))
    loaded = load_encoder(tmp_path / "e")
    assert (loaded.prompts["query"], loaded.prompts["document"]) == expected
    assert {name: text for name, text in prompts.items() if loaded.prompts[name] != text} == {}


def test_texts_are_encoded_with_the_prompt_and_the_options(still_encoder: SentenceTransformer):
    still_encoder.prompts = {"search_query": "the old ", "passage": "a "}
    for role, prompt in (("query", "the old "), ("document", "a ")):
        found = encode_as(still_encoder, role, ["dog", "a cat"], normalize_embeddings=True)
        expected = still_encoder.encode(["dog", "a cat"], prompt=prompt, normalize_embeddings=True)
        assert (found == expected).all()


@pytest.mark.parametrize("role", ["query", "document"])
def test_a_text_or_a_prompt_that_is_none_is_named(encoder: SentenceTransformer, role):
    texts = {"query": "queries", "document": "documents"}[role]
    for wrong in (3, "a \ud83d"):
        with pytest.raises(ValueError, match=rf"^{texts}, row 2"):
            encode_as(encoder, role, ["a", "b", wrong])
    encoder.prompts[role] = "a \ud83d"
    with pytest.raises(ValueError, match=rf"^the prompt for {texts}"):
        encode_as(encoder, role, ["a"])


def test_a_model_is_left_as_it_is(encoder: SentenceTransformer):
    encoder.prompts = {"query": "", "Query": "q: "}
    assert other_prompt(encoder, "query") == "q: "
    assert other_prompt(encoder, "document") is None
    assert encoder.prompts == {"query": "", "Query": "q: "}

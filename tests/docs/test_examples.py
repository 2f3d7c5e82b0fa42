"""The Python on the site's pages runs as it stands there, on a tiny encoder."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES

TESTED_ELSEWHERE = {"adapting.md", "decoders.md", "export.md", "post-processing.md", "scale.md"}
BLOCKS = {
    f"{page}, {number}": block
    for page, text in PAGES.items()
    if page not in TESTED_ELSEWHERE
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL), 1)
}
SMALLER = {"max_steps=400": "max_steps=2, batch_size=4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_python_block(name, encoder, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder.save("encoder")
    rows = [f"x\t{i % 5}\t{s}\t{sentences[-1 - i]}" for i, s in enumerate(sentences)]
    Path("stsb_dev.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *rows]), encoding="utf8")
    Path("my-faq").mkdir()
    for file, text in {
        "corpus": "id,text\n7,the dog ran",
        "queries": "id,text\na,a dog",
        "qrels": "qid,docid\na,7",
    }.items():
        Path("my-faq", f"{file}.csv").write_text(f"{text}\n", encoding="utf8")
    more = [*sentences, *(f"{sentence} {word}" for word in ("today", "again") for sentence in sentences)]
    code = BLOCKS[name]
    for written, here in {
        "bert-base-uncased": "encoder",
        "path/to/a/simcse/encoder": "encoder",
        "path/to/sts": ".",
        "my-search": "encoder",
    }.items():
        code = code.replace(f'"{written}"', repr(here))
    for written, here in SMALLER.items():
        code = code.replace(written, here)
    exec(compile(code, name, "exec"), {"sentences": more, "model": encoder})


def test_the_pages_have_examples():
    assert len({name.partition(",")[0] for name in BLOCKS}) >= 10

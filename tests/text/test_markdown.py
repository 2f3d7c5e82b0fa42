"""Markdown as people keep it: front matter gives id and title, else the first heading is the title."""

import pytest

from st_extras.text.corpus import read_sentences
from st_extras.text.documents import read_documents
from tests.helpers import write

FRONT = "---\nid: {id}\ntitle: {title}\ntags: [a, b]\n---\n{body}"


@pytest.mark.parametrize(
    ("content", "title", "text"),
    [
        ("# Cards #\n\nabout *a* card\n", "Cards", "about *a* card"),
        ("Cards\n=====\n\nabout\n", "Cards", "about"),
        ("intro\n\n## Cards\nabout\n", "Cards", "intro\n\nabout"),
        ("```sh\n# no title\n```\n\n### Cards\n", "Cards", "```sh\n# no title\n```"),
        ("~~~\n```\n# no title\n~~~\n# Cards\n", "Cards", "~~~\n```\n# no title\n~~~"),
        ("## What is E42? {#e42 .note}\nAn error.\n", "What is E42?", "An error."),
        ("#\n#hashtag\n####### seven\n    # code\n", "", "#\n#hashtag\n####### seven\n    # code"),
        ("no heading\n---\n| a | b |\n", "", "no heading\n---\n| a | b |"),
        # front matter
        ("---\ntitle: Lost cards\n---\nabout\n", "Lost cards", "about"),
        ("\ufeff---  \r\ntitle: Lost cards\r\n---\r\nabout\r\n", "Lost cards", "about"),
        ("---\ntitle: 'A: b'\ndate: 2020-01-01\n...\nabout", "A: b", "about"),
        ("---\nTitle: >\n  Lost\n  cards\n---\nabout", "Lost cards", "about"),
        ("---\ntitle: Cards\n---\n\n# Cards\n\nabout", "Cards", "about"),
        ("---\ntitle: Cards\n---\n\n# Lost\n\nabout", "Cards", "# Lost\n\nabout"),
        ("---\ntags: [a]\n---\n# Lost\nabout", "Lost", "about"),
        ("---\ntitle: 1984\n---\nabout", "1984", "about"),
        ("---\ntitle: Yes\n---\nabout", "Yes", "about"),
        ("---\ntitle: Cards\n---\n", "Cards", ""),
        ("---\ntitle: Cards\n---", "Cards", ""),
        ("---\ntitle: Cards\n---\na\n\n---\n\nb\n\n---\n", "Cards", "a\n\n---\n\nb\n\n---"),
        ("---\n---\nabout", "", "about"),
        ("---\n# only a comment\n---\nabout", "", "about"),
        # a colon that should stand in quotes
        (
            "---\nlayout: page\ntitle: E42: the printer's paper\ntags: [a]\n---\nabout",
            "E42: the printer's paper",
            "about",
        ),
        ("---\ntitle: Cards\ndescription: Re: lost cards \r\n---\nabout", "Cards", "about"),
        ("---\ntitle: @home\n---\nabout", "@home", "about"),
        # not front matter, or malformed: text
        ("---\ntitle: Foo\n  bar: baz: x\n---\nabout", "", "---\ntitle: Foo\n  bar: baz: x\n---\nabout"),
        ("---\ntitle: [open\n---\n# Cards\n", "Cards", "---\ntitle: [open\n---"),
        ("---\njust a rule\n---\nabout", "", "---\njust a rule\n---\nabout"),
        ("---\ntitle: never closed\n", "", "---\ntitle: never closed"),
        ("text\n---\ntitle: late\n---\n", "", "text\n---\ntitle: late\n---"),
        ("----\nhello\n----\nabout", "", "----\nhello\n----\nabout"),
        ("456\n+456\n------\n912", "", "456\n+456\n------\n912"),
        ("---\n- a\n- list\n---\nabout", "", "---\n- a\n- list\n---\nabout"),
        ('---\ntitle: "\\ud800"\n---\nabout', "", "about"),
        ("---\na: " + "[" * 5000 + "\n---\nabout", "", "---\na: " + "[" * 5000 + "\n---\nabout"),
        ("---\n!!python/object/apply:os.system [exit 3]: 1\n---\nabout", "", None),
    ],
)
def test_title_and_text_of_a_markdown_file(tmp_path, content, title, text):
    path = tmp_path / "a.md"
    path.write_bytes(content.encode())
    if text is None:
        text = content.strip()
    (read,) = read_documents(path)
    assert (read.id, read.title, read.text) == (str(path), title, text)
    assert read_sentences(path) == [f"{title} {text}".strip()]


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("007", "007"),
        ("e-42", "e-42"),
        ("09111", "09111"),
        ("016", "016"),
        ("1.10", "1.10"),
        ("no", "no"),
        ("", None),
        ('"  "', None),
        ("[a]", None),
        ("2020-01-01",) * 2,
    ],
)
def test_the_id_of_the_front_matter_is_text_else_the_path_is(tmp_path, id, wanted):
    path = write(tmp_path / "a.md", FRONT.format(id=id, title="Cards", body="about"))
    (read,) = read_documents(path)
    assert (read.id, read.title, read.text) == (wanted or str(path), "Cards", "about")


def test_an_id_that_two_files_have_is_refused(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.md", FRONT.format(id=7, title=name, body="about"))
    with pytest.raises(ValueError, match=r"b\.md: the id '7' stands twice"):
        read_documents(tmp_path)

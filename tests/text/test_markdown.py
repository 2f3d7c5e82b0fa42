"""Markdown as people keep it: front matter gives id and title, else the first heading is the title."""

import itertools

import pytest

from st_extras.text.corpus import read_sentences
from st_extras.text.documents import Document, read_documents
from tests.helpers import write

FRONT = "---\nid: {id}\ntitle: {title}\ntags: [a, b]\n---\n{body}"


def title_and_text(path):
    (document,) = read_documents(path)
    assert document.id == str(path)
    return document.title, document.text


@pytest.mark.parametrize(
    ("content", "title", "text"),
    [
        ("# Cards #\n\nabout *a* card\n", "Cards", "about *a* card"),
        ("Cards\n=====\n\nabout\n", "Cards", "about"),
        ("Cards\n---\nabout\n", "Cards", "about"),
        ("intro\n\n## Cards\nabout\n", "Cards", "intro\n\nabout"),
        ("intro\r\n\r\n## Cards\r\nabout\r\n", "Cards", "intro\n\nabout"),
        ("intro\u2028\x0bon\n\n## Cards\nabout\x85 it\n", "Cards", "intro\u2028\x0bon\n\nabout\x85 it"),
        ("line\n" * 200 + "\n# Cards\nabout\n", "Cards", "line\n" * 200 + "\nabout"),
        ("# Cards\n" + "line\n" * 200, "Cards", "line\n" * 199 + "line"),
        ("line\n" * 59 + "Cards\n===\nabout\n", "", "line\n" * 59 + "Cards\n===\nabout"),
        ("#\n#hashtag\n####### seven\n\n    # code\n", "", "#\n#hashtag\n####### seven\n\n    # code"),
        ("> # quoted\n\n- # of a list\n\n# Cards\n", "Cards", "> # quoted\n\n- # of a list"),
        ("one\ntwo\n---\n\nthree\n", "", "one\ntwo\n---\n\nthree"),  # rather a rule below a paragraph
        # what only looks like a heading
        ("```sh\n# no title\n```\n\n### Cards\n", "Cards", "```sh\n# no title\n```"),
        ("~~~\n```\n# no title\n~~~\n# Cards\n", "Cards", "~~~\n```\n# no title\n~~~"),
        ('```py title="a.py"\n# no title\n```\n# Cards\n', "Cards", '```py title="a.py"\n# no title\n```'),
        ("```\na ```py\n# no title\n````\n# Cards\n", "Cards", "```\na ```py\n# no title\n````"),
        ("<!--\n# Copyright\n-->\n\n# Cards\n", "Cards", "<!--\n# Copyright\n-->"),
        ("<pre>\n# no title\n\n# nor this\n</pre>\n# Cards\n", "Cards", "<pre>\n# no title\n\n# nor this\n</pre>"),
        # braces
        ("# GET /users/{id}\nabout\n", "GET /users/{id}", "about"),
        ("# The set {1, 2}\nabout\n", "The set {1, 2}", "about"),
        ("# Vec<T> and `code` {#vec}\nabout\n", "Vec<T> and `code`", "about"),
        ("## What is E42? {#e42 .note}\nAn error.\n", "What is E42?", "An error."),
        ("## What is E42? {: .note data-x=1 } ##\nAn error.\n", "What is E42?", "An error."),
        ("Cards {#cards}\n===\nabout\n", "Cards", "about"),
        ("## Heading ids {/* #my-id */}\nabout\n", "Heading ids", "about"),
        ("## Heading ids <!-- #my-id --> ##\nabout\n", "Heading ids", "about"),
        ("## GET {/* both */} and <!-- in --> between\nabout\n", "GET {/* both */} and <!-- in --> between", "about"),
        # front matter
        ("---\ntitle: Lost cards\n---\nabout\n", "Lost cards", "about"),
        ("\ufeff---  \r\ntitle: Lost cards\r\n---\r\nabout\r\n", "Lost cards", "about"),
        ("---\rtitle: Lost cards\r---\rabout\rit\r", "Lost cards", "about\nit"),
        ("---\ntitle: 'A: b'\ndate: 2020-01-01\n...\nabout", "A: b", "about"),
        ("---\nTitle: >\n  Lost\n  cards\n---\nabout", "Lost cards", "about"),
        ("---\ntitle: Cards\n---\n\n# Cards\n\nabout", "Cards", "about"),
        ("---\ntitle: Cards\n---\n\n# Lost\n\nabout", "Cards", "# Lost\n\nabout"),
        ("---\ntags: [a]\n---\n# Lost\nabout", "Lost", "about"),
        ("---\ntags: [a]\naliases:\n- b\n---\nabout [[Lost cards]]", "", "about [[Lost cards]]"),
        ("---\ntitle: 1984\n---\nabout", "1984", "about"),
        ("---\ntitle: Yes\n---\nabout", "Yes", "about"),
        ("---\ntitle: 1.10\n---\nabout", "1.10", "about"),
        ("---\nTITLE: 1.10\n---\nabout", "1.10", "about"),
        ("---\ntitle: null\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle: ~\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle:\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle: 'null'\n---\n# Cards\nabout", "null", "# Cards\nabout"),
        ("---\ntitle: [a]\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle: [[a]]\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle:\n  en: Lost\n---\n# Cards\nabout", "Cards", "about"),
        ("---\ntitle: True\n---\nabout", "True", "about"),
        ("---\ntitle: Cards\n---\n", "Cards", ""),
        ("---\ntitle: Cards\n---", "Cards", ""),
        ("---\ntitle: Cards\n---\na\n\n---\n\nb\n\n---\n", "Cards", "a\n\n---\n\nb\n\n---"),
        ("---\ntitle: Cards\nnote: |\n  a\n  ---\n  b\n---\nabout", "Cards", "about"),
        ("---\n---\nabout", "", "about"),
        ("---\n\n---\nabout", "", "about"),
        ("---\n#only a comment\n---\nabout", "", "about"),
        ("---\n# a comment\ntags: [a]\n---\nabout", "", "about"),
        ("---\ntitle: Cards\ndate: 2024-13-45\ntime: 2024-01-01T10:00:00+02:00\n---\nabout", "Cards", "about"),
        ("---\ntitle: Cards\nsecret: !vault x\n? [a, b]\n: c\n---\nabout", "Cards", "about"),
        ("---\nbase: &base {a: 1}\ntitle: Cards\n<<: *base\n---\nabout", "Cards", "about"),
        (
            '+++\ntitle = "Lost cards"\ndate = 2024-01-01T10:00:00+02:00\n[extra]\na = [1]\n+++\nabout',
            "Lost cards",
            "about",
        ),
        ('+++\r\ntitle = """\r\nLost\r\ncards"""\r\n+++\r\nabout', "Lost cards", "about"),
        ("+++\ntitle = 1984\n+++\nabout", "1984", "about"),
        ('{\n  "title": "Lost cards",\n  "extra": {\n"a": 1\n}\n}\n\nabout', "Lost cards", "about"),
        ('{"title": "Lost cards", "tags": ["a"]}\nabout', "Lost cards", "about"),
        ('{"title": "Lost cards"}', "Lost cards", ""),
        ('{"title": null}\n# Cards\nabout', "Cards", "about"),
        # a colon that should stand in quotes
        (
            "---\nlayout: page\ntitle: E42: the printer's paper\ntags: [a]\n---\nabout",
            "E42: the printer's paper",
            "about",
        ),
        ("---\ntitle: Cards\ndescription: Re: lost cards \r\n---\nabout", "Cards", "about"),
        ("---\ntitle: @home\n---\nabout", "@home", "about"),
        ("---\ntitle: *Lost* cards\ntags: [a]\n---\nabout", "*Lost* cards", "about"),
        ("---\ntitle: [Draft] Lost cards\ntags: [\n  a]\n---\nabout", "[Draft] Lost cards", "about"),
        ("---\ntitle: {{title}} of cards\n---\nabout", "{{title}} of cards", "about"),
        ('---\ntitle: "Lost" cards\nnote: "two\n  lines"\n---\nabout', '"Lost" cards', "about"),
        ("---\nLast edited: by: me\ntitle: Cards\n---\nabout", "Cards", "about"),
        ("\n \n---\ntitle: Cards\n---\nabout", "Cards", "about"),
        ("\n+++\ntitle = 'Cards'\n+++\nabout", "Cards", "about"),
        ("\n    # code\n", "", "# code"),
        # no front matter: text
        ("---\njust a rule\n---\nabout", "just a rule", "---\nabout"),
        ("---\n# Welcome\n---\nabout", "Welcome", "---\n---\nabout"),
        ("\n---\n\n  ## Welcome\n# Again\n---\nabout", "Welcome", "---\n\n# Again\n---\nabout"),
        ("---\n\nPlease note: this\n\n- is: [not\n\n---\n", "", "---\n\nPlease note: this\n\n- is: [not\n\n---"),
        ("---\ntitle: never closed\n", "", "---\ntitle: never closed"),
        ("text\n\n---\ntitle: late\n\n---\n", "", "text\n\n---\ntitle: late\n\n---"),
        ("----\nhello\n\n----\nabout", "", "----\nhello\n\n----\nabout"),
        ("456\n+456\n------\n912", "", "456\n+456\n------\n912"),
        ("---\n- a\n- list\n---\nabout", "", "---\n- a\n- list\n---\nabout"),
        ("---\n!!python/object/apply:os.system [exit 3]: 1\n\n---\nabout", "", None),
        ("{% include cards.html %}\n\nabout", "", "{% include cards.html %}\n\nabout"),
        ("{{< toc >}}\nabout\n}\n", "", "{{< toc >}}\nabout\n}"),
        ('{"a": 1} is an object', "", '{"a": 1} is an object'),
        ("+++\nonly signs", "", "+++\nonly signs"),
    ],
)
def test_title_and_text_of_a_markdown_file(tmp_path, caplog, content, title, text):
    path = tmp_path / "a.md"
    path.write_bytes(content.encode())
    if text is None:
        text = content.strip()
    assert title_and_text(path) == (title, text)
    assert read_sentences(path) == [f"{title} {text}".strip()]
    assert "Front matter" not in caplog.text


UNREADABLE = {
    "a": "---\ntitle: Foo\n  bar: baz: x\n---\n",
    "b": "---\n# a comment\n\ntitle: [open\n---\n",
    "c": '---\ntitle: "\\ud800"\n---\n',
    "d": "---\na: " + "[" * 1000 + "\n---\n",
    "e": '---\n"title": Cards\ntags: "never closed\n---\n',
    "f": "+++\ntitle = Cards\n+++\n",
    "g": '{\n  "title": Cards\n}\n',
    "h": "+++\nnumber = " + "1" * 5000 + "\n+++\n",
    "i": "---\na: &a [*a]\nb: [\n  *c]\n---\n",
    "j": '{"\\ud800": "a"}\n',
    "k": '{"tags": ["a", "\\ud800"]}\n',
}


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        (UNREADABLE["a"], "line 3: mapping values are not allowed here"),
        (f"\n \n{UNREADABLE['a']}", "line 5: mapping values are not allowed here"),
        (f"\n{UNREADABLE['f']}", "Invalid value (at line 3, column 9)"),
        (f"\n{UNREADABLE['g']}", "Expecting value: line 3 column 12 (char 14)"),
        (UNREADABLE["b"], "line 5: expected ',' or ']', but got '<stream end>'"),
        (UNREADABLE["c"], "'title' holds a lone surrogate"),
    ],
)
def test_why_front_matter_cannot_be_read_is_named_with_the_line_of_the_file(tmp_path, caplog, front, reason):
    read_documents(write(tmp_path / "a.md", f"{front}about\n"))
    assert caplog.messages[0].partition("a.md (")[2] == f"{reason})."


@pytest.mark.parametrize("name", UNREADABLE)
def test_front_matter_that_cannot_be_read_is_no_text(tmp_path, caplog, name):
    path = write(tmp_path / "a.md", f"{UNREADABLE[name]}\n# Lost\nabout\n")
    assert title_and_text(path) == ("Lost", "about")
    assert [message.split(" (")[0] for message in caplog.messages] == [
        f"Front matter that could not be read is left out: of 1 file, such as {path}"
    ]
    assert "\n" not in caplog.messages[0]


def test_the_files_whose_front_matter_cannot_be_read_are_counted(tmp_path, caplog):
    write(tmp_path / "0.md", "---\ntitle: Fine\n---\nabout\n")
    for name, front in UNREADABLE.items():
        write(tmp_path / f"{name}.md", f"{front}about {name}\n")
    for read in (read_documents, read_sentences):
        caplog.clear()
        assert len(read(tmp_path)) == 1 + len(UNREADABLE)
        (message,) = caplog.messages
        assert message.startswith(
            f"Front matter that could not be read is left out: of 11 files, such as {tmp_path}/a.md ("
        )
        assert message.endswith("line 3: mapping values are not allowed here).")
    caplog.clear()
    assert read_sentences(tmp_path, limit=2) == ["Fine about", "about a"]
    assert caplog.messages == [message], "also where the caller wants no more"


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("007", "007"),
        ("e-42", "e-42"),
        ("09111", "09111"),
        ("016", "016"),
        ("1.10", "1.10"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("true", "true"),
        ("18446744073709551616", "18446744073709551616"),
        ("", None),
        ('"  "', None),
        ("[a]", None),
        ("[[a]]", None),
        ("{a: b}", None),
        ("null", None),
        ("~", None),
        ("'null'", "null"),
        ("2020-01-01",) * 2,
    ],
)
def test_the_id_of_the_front_matter_is_text_else_the_path_is(tmp_path, id, wanted):
    path = write(tmp_path / "a.md", FRONT.format(id=id, title="Cards", body="about"))
    (document,) = read_documents(path)
    assert (document.id, document.title, document.text) == (wanted or str(path), "Cards", "about")


@pytest.mark.parametrize(
    ("front", "wanted"),
    [
        ('{"id": 7}', "7"), ('{"id": null}', None), ('{"ID": "e-42"}', "e-42"), ('{"id": [1]}', None),
        ('{"id": {"a": 1}}', None), ('{"id": true}', "true"), ("+++\nid = true\n+++", "true"),
        ("+++\nid = 7\n+++", "7"), ('+++\nid = "007"\n+++', "007"), ("+++\nid = 2020-01-01\n+++", "2020-01-01"),
        ("---\nID: 1.10\n---", "1.10"),
    ],
)  # fmt: skip
def test_an_id_of_any_kind_of_front_matter_is_text(tmp_path, front, wanted):
    path = write(tmp_path / "a.md", f"{front}\nabout")
    assert read_documents(path)[0].id == (wanted or str(path))


def test_an_id_that_two_files_have_is_refused(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.md", FRONT.format(id=7, title=name, body="about"))
    with pytest.raises(ValueError, match=r"b\.md: the id '7' stands twice"):
        read_documents(tmp_path)


@pytest.mark.parametrize("ending", [".md", ".markdown", ".mdown", ".mkd", ".mdx", ".MDX", ".md.gz"])
def test_each_ending_of_markdown_is_read(tmp_path, ending):
    path = write(tmp_path / f"a{ending}", "# Cards\n\nabout\nit\n")
    for source in (path, tmp_path, f"{tmp_path}/*"):
        assert read_sentences(source) == ["Cards about\nit"]


@pytest.mark.parametrize(
    ("front", "wanted"),
    [
        ("product: card\nCategory: 'Lost cards'", {"product": "card", "Category": "Lost cards"}),
        ("pages: 2\nrate: 0.5\ndraft: false\nopen: True", {"pages": 2, "rate": 0.5, "draft": False, "open": True}),
        ("a: null\nb: ~\nc:\nd: ''\ne: []", {}),
        ("date: 2024-05-01\nlast: 2024-05-01T10:00:00+02:00\nday: 2024-13-45",
         {"date": "2024-05-01", "last": "2024-05-01T10:00:00+02:00", "day": "2024-13-45"}),
        ("time: 12:30\nlang: no\nzip: 00712", {"time": "12:30", "lang": "no", "zip": "00712"}),
        ("commit: 12e4567\nfloat: .nan\nbig: 18446744073709551616",
         {"commit": "12e4567", "float": ".nan", "big": 2**64}),
        ("tags: [card, 2024]\naliases:\n- Lost\n- '[[Stolen cards|stolen]]'",
         {"tags": "card, 2024", "aliases": "Lost, [[Stolen cards|stolen]]"}),
        ("up: '[[Cards]]'\nurl: https://a.b/c#d\nnote: |\n  a\n  b",
         {"up": "[[Cards]]", "url": "https://a.b/c#d", "note": "a\nb\n"}),
        ("note: Re: cards\npages: 2", {"note": "Re: cards", "pages": 2}),
        ("a: |\n  7\nb: >-\n  true\nc: '7'\nd: 7", {"a": "7\n", "b": "true", "c": "7", "d": 7}),
        ("pages: 1\npages: 2", {"pages": 2}),
        ("text: no\nsentence: no text\n_id: no id\ndoc_id: none\nmetadata: x",
         {"text": "no", "sentence": "no text", "_id": "no id", "doc_id": "none", "metadata": "x"}),
    ],
)  # fmt: skip
def test_the_other_fields_of_front_matter_are_metadata(tmp_path, caplog, front, wanted):
    path = write(tmp_path / "a.md", f"---\nid: e42\ntitle: Cards\n{front}\n---\nabout\n")
    assert read_documents(path) == [Document("e42", "Cards", "about", wanted)]
    assert [type(value) for value in read_documents(path)[0].metadata.values()] == [*map(type, wanted.values())]
    assert not caplog.messages


TOML = """+++
product = "card"
pages = 2
tags = ["lost", "stolen"]
day = 2024-05-01
last = 2024-05-01T10:00:00+02:00
[params]
nested = true
+++
about
"""
JSON = '{"product": "card", "pages": 2, "tags": ["lost", "stolen"], "day": null, "params": {"nested": true}}\nabout\n'


def test_fields_of_toml_and_json_are_metadata_and_nested_ones_are_named_once(tmp_path, caplog):
    wanted = {"product": "card", "pages": 2, "tags": "lost, stolen"}
    dates = {"day": "2024-05-01", "last": "2024-05-01T10:00:00+02:00"}
    for name, content in {
        "a": TOML,
        "b": JSON,
        "c": "---\nlist: [[1]]\nparams: {a: 1}\nmore: {}\n---\nabout\n",
    }.items():
        write(tmp_path / f"{name}.md", content)
    assert [one.metadata for one in read_documents(tmp_path)] == [wanted | dates, wanted, {}]
    (message,) = caplog.messages
    left_out = "left out of the metadata, which holds texts, finite numbers, truth values and dates alone"
    assert message == f"{tmp_path}/a.md and others: {left_out}: params, list, more."
    caplog.clear()
    read_documents([tmp_path / "a.md", write(tmp_path / "d.md", "---\nzip: 1\n---\n# D\n")])
    assert caplog.messages == [f"{tmp_path}/a.md: {left_out}: params."]


def test_values_of_yaml_that_grow_are_not_unfolded(tmp_path):
    lists = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefghijklmnop"))
    path = write(tmp_path / "a.md", f"---\na: &a [x]\n{lists}product: card\ntitle: *f\nid: *f\n---\nabout\n")
    assert read_documents(path) == [Document(str(path), "", "about", {"a": "x", "product": "card"})]

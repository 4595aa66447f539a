"""How the pages here become a site: Sphinx with MyST, strict, offline. `make docs` runs it.

A line in index.md puts a page into a section. A page without such a line is still built,
under "Further pages"; a test in tests/docs then fails with the remedy.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import mmdr
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference_pages  # noqa: E402  (it is beside this file, in no package)
from sections import FURTHER, by_section, pages  # noqa: E402

project = "The provisioner"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["README.md", "**/README.md", "examples/**", "_build/**"]
html_theme = "furo"
html_title = "The provisioner"
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "default", "github-dark"
highlight_language = "text"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]  # half a JSON document is shown as it is

GENERATED = "generated"
MADE = dict.fromkeys(reference_pages.PAGES, "Look up") | {"decisions.md": "Understand"}
LINK = re.compile(r"\[([^\[\]]*)\]\(([^):#\s]+)(?:#[^)]*)?\)")
ANCHORED = re.compile(r"\[([^\[\]]*)\]\(([^):#\s]*)#([\w-]+)\)")


class Mermaid(Directive):
    """A diagram, drawn while the pages are built: a reader needs no script and no network."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        drawn = str(mmdr.render("\n".join(self.content)).svg())
        if "<svg" not in drawn:
            raise self.severe("the diagram was not drawn")
        frame = '<div class="diagram" style="overflow-x:auto;background:#fff;padding:.5rem">'
        return [nodes.raw("", f"{frame}{drawn}</div>", format="html")]


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """The same text serves a repository's web view and this site: adapt what differs."""
    text = source[0].replace("```mermaid\n", "```{mermaid}\n")
    text = LINK.sub(lambda m: _outside(m, HERE / f"{name}.md"), text)
    text = ANCHORED.sub(lambda m: _anchored(m, HERE / f"{name}.md"), text)
    if name == root_doc:
        text += _contents()
    source[0] = text


def _outside(link: re.Match[str], page: Path) -> str:
    """A folder of the repository is no page, and a page has no place for it: the text remains."""
    target = (page.parent / link[2]).resolve()
    if target in (HERE / "decisions", HERE / "decisions" / "README.md"):
        up = "../" * (len(page.relative_to(HERE).parts) - 1)
        return f"[{link[1]}]({up}{GENERATED}/decisions.md)"
    outside = not target.is_relative_to(HERE)
    if target.is_dir() or (outside and target.suffix == ".md"):
        return link[1]
    return link[0]


def _anchored(link: re.Match[str], page: Path) -> str:
    """An anchor that a page names itself is HTML, which the parser's references do not know."""
    target = (page.parent / link[2]).resolve() if link[2] else page
    if target.suffix != ".md" or f'<a id="{link[3]}"></a>' not in target.read_text("utf-8"):
        return link[0]
    address = f"{link[2].removesuffix('.md')}.html" if link[2] else ""
    return f'<a href="{address}#{link[3]}">{link[1]}</a>'


def _contents() -> str:
    lines: list[str] = []
    for section, listed in by_section().items():
        made = [f"{GENERATED}/{name}" for name, under in MADE.items() if under == section]
        every = [*listed, *made]
        lines += _toctree(section, every)
    lines += _toctree(FURTHER, sorted(pages() - {p for s in by_section().values() for p in s}))
    return "\n".join(lines)


def _toctree(caption: str, listed: list[str]) -> list[str]:
    if not listed:
        return []
    head = ["", "```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {caption}", ""]
    return [*head, *(p.removesuffix(".md") for p in listed), "```", ""]


CURRENT = re.compile(
    r'(<li class="toctree-l\d) current current-page">'
    r'<a class="current reference internal" href="#">'
)
TREES: dict[str, tuple[str, str]] = {}  # by folder: its pages' tree, and the page that is marked


def _share_tree(app: Sphinx, page: str, _file: str, context: dict[str, Any], _tree: object) -> None:
    """The tree of all pages stands beside each: to make it for each was most of the build. Pages of
    one folder, whose links are the same, share one; `_mark_page` marks another line of it."""
    if page in app.env.all_docs and not app.env.toctree_includes.get(page):
        folder, _, name = page.rpartition("/")
        make = context["toctree"]

        def shared(**asked: Any) -> str:
            if folder not in TREES:
                TREES[folder] = (str(make(**asked)), name)
            return TREES[folder][0]

        context["toctree"] = shared


def _mark_page(app: Sphinx, page: str, _file: str, context: dict[str, Any], _tree: object) -> None:
    folder, _, name = page.rpartition("/")
    first = TREES[folder][1] if folder in TREES else name
    if page not in app.env.all_docs or app.env.toctree_includes.get(page) or first == name:
        return
    plain = rf'\1"><a class="reference internal" href="{first}.html">'
    html, were = CURRENT.subn(plain, context["furo_navigation_tree"])
    line = re.compile(
        rf'(<li class="toctree-l\d)"><a class="reference internal" href="{re.escape(name)}\.html">'
    )
    marked = r'\1 current current-page"><a class="current reference internal" href="#">'
    html, are = line.subn(marked, html)
    if (were, are) != (1, 1):
        raise ValueError(f"{page} has {are} lines in the tree of pages, and {first} has {were}")
    context["furo_navigation_tree"] = html


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx before anything is read."""
    reference_pages.write(HERE / GENERATED)
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", _read)
    app.connect("html-page-context", _share_tree, priority=400)  # furo's own has 500
    app.connect("html-page-context", _mark_page, priority=600)
    return {"parallel_read_safe": True}

"""What mkdocs is told besides mkdocs.yml: what pages have for GitHub and an editor, as the site needs it.

Links that lead out of docs/ have to lead somewhere in the site too. In the repository a page links to
../../config/examples/aws.yaml. On the site the file is taken along, under files/, and the link is bent to it; a link to
a folder leads to a list of its files. Besides: files of our own kinds are coloured as the YAML that they are, and an
escaped bar in a table's code is a bar.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: Blocks that are YAML: a scenario, a dialect, and a file that a page names in its first line.
YAML = re.compile(r"^```(?:scenario|dialect|(?=\n# \w+\.yaml$))", re.MULTILINE)
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+|[^)#:\s]+/?)(?=[)#])")


def outside(page: Path) -> dict[str, Path]:
    """The links of a page that lead out of docs/, and where to; a folder of docs/ itself among them."""
    found = {}
    for _, target in LINK.findall(page.read_text()):
        there = (page.parent / target).resolve()
        if there.exists() and (not there.is_relative_to(DOCS) or there.is_dir()):
            found[target] = there
    return found


def name(there: Path) -> str:
    """Where something from outside lies in the site; Markdown and folders become pages of text."""
    inside = f"files/{there.relative_to(ROOT)}"
    return inside + "/index.txt" if there.is_dir() else inside + ".txt" if there.suffix == ".md" else inside


def text(there: Path) -> str:
    """What lies there, or the names of it."""
    if not there.is_dir():
        return there.read_text()
    return "".join(f"{path.relative_to(there)}\n" for path in sorted(there.rglob("*")) if path.is_file())


def on_files(files: Files, *, config: Any) -> Files:
    """Take along what is linked to."""
    pages = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    for there in sorted({there for page in pages for there in outside(page).values()}):
        files.append(File.generated(config, name(there), content=text(there)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Bend the links, and name the kinds of blocks."""
    source = Path(str(page.file.abs_src_path))
    bent = {target: os.path.relpath(DOCS / name(there), source.parent) for target, there in outside(source).items()}
    bent_all = LINK.sub(lambda found: found[1] + bent.get(found[2], found[2]), markdown)
    return YAML.sub("```yaml", bent_all)


def on_page_content(html: str, **_: Any) -> str:
    """Python's Markdown keeps the backslash before a bar in a table's code, which GitHub takes away."""
    return re.sub(r"<code>[^<]*</code>", lambda found: found[0].replace("\\|", "|"), html)

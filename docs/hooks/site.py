"""What the site needs beyond MkDocs: files from outside `docs/`, drawings, cells that do not break.

Pages link to files of the repository as they do when read there: `../../CHANGELOG.md`. Each such
file is copied to `project/` in the site, and the link leads there. Markdown files become pages, and
their own links are followed too. Links to folders become plain text.

SVG drawings are put into the page itself, so that the switch between light and dark reaches them.
In tables, "90.1 ± 0.2" and short code stay on one line.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
OUTSIDE = "project"  # the folder of the site for files from outside docs/
LINK = re.compile(r"(?<!`)\[((?:!\[[^]]*\]\([^)]*\)|[^]\[])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
IMAGE = re.compile(r'<img [^>]*src="([^"]+\.svg)"[^>]*/?>')
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
SHORT_CODE = re.compile(r"<code>([^<]{1,24})</code>")


def on_files(files, config):
    """Add the files outside `docs/` that pages link to."""
    pages = [Path(f.abs_src_path) for f in files.documentation_pages() if f.abs_src_path]
    seen = set()
    while pages:
        page = pages.pop()
        for target in outside_links(page):
            if target in seen or not target.is_file():
                continue
            seen.add(target)
            files.append(File.generated(config, site_path(target), abs_src_path=str(target)))
            if target.suffix == ".md":
                pages.append(target)
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links that leave `docs/` lead to the copies."""
    source = Path(page.file.abs_src_path)
    here = page.file.src_uri

    def redirect(link):
        label, path, anchor = link[1], link[2], link[3] or ""
        label = LINK.sub(redirect, label)  # a picture that is a link
        target = resolve(source, path)
        if is_within(target, DOCS) and is_within(source, DOCS):
            return f"[{label}]({path}{anchor})"
        if target.is_dir():
            return label
        path = os.path.relpath(site_path(target), Path(here).parent)
        return f"[{label}]({path}{anchor})"

    return LINK.sub(redirect, markdown)


def on_page_content(html, page, config, files):
    """Put drawings into the page, and keep short things in table cells on one line."""

    def inline(image):
        path = DOCS / Path(page.file.dest_uri).parent / image[1]
        if not path.resolve().is_relative_to(DOCS / "figures"):
            return image[0]
        return f'<div class="drawing">{path.read_text()}</div>'

    def unbroken(cell):
        text = cell[0].replace(" ± ", "&nbsp;±&nbsp;")
        return SHORT_CODE.sub(r'<code class="short">\1</code>', text)

    return CELL.sub(unbroken, IMAGE.sub(inline, html))


def outside_links(page):
    """The files outside `docs/` that a Markdown file links to."""
    for _, path, _ in LINK.findall(page.read_text()):
        target = resolve(page, path)
        if not is_within(target, DOCS):
            yield target


def resolve(page, path):
    """The file that a link of a page leads to."""
    return Path(os.path.normpath(page.parent / path))


def is_within(path, folder):
    """Whether a path is in a folder."""
    return path.is_relative_to(folder)


def site_path(target):
    """Where the site has a file: itself if it is in `docs/`, its copy otherwise."""
    if is_within(target, DOCS):
        return target.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"

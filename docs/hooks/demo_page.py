"""The page of the demonstration, trained and written while the site is built."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.structure.files import File

from hashembed.cli.demo import TEXTS
from hashembed.cli.demo_page import write_demo_page

NAME = "demo.html"


def on_files(files, config):
    """Add the page to the site."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        write_demo_page(path, TEXTS)
        files.append(File.generated(config, NAME, content=path.read_bytes()))
    return files

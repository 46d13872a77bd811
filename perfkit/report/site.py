"""The index of all measurements under an outputs folder."""

from pathlib import Path

from perfkit.report.sections import TEMPLATES, title
from perfkit.results import ResultError, folders, read_result, write_atomically


def write_index(outputs: Path) -> Path:
    """Write `outputs/index.html`, newest first; files that can't be read are named in it."""
    rows, unreadable = [], []
    for folder in folders(outputs):
        try:
            result = read_result(folder / "result.json")
        except ResultError as error:
            unreadable.append(str(error).replace(f"{outputs}/", ""))
            continue
        rows.append((folder.name, title(result), result, (folder / "report.html").exists()))
    rows.sort(key=lambda row: (row[2].created, row[0]), reverse=True)
    style = (Path(__file__).parent / "templates" / "style.css").read_text()
    index = outputs / "index.html"
    page = TEMPLATES.get_template("index.html.j2")
    write_atomically(index, page.render(rows=rows, unreadable=unreadable, style=style))
    return index

"""JupyterLab as opened by `make lab`, in a real browser: Run All shows progress, figures,
tables and finally the number with a link to its page."""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from importlib.util import find_spec

import nbformat
import pytest
from fake_trainer import planted
from made.clusters import wait_for
from PIL import Image
from playwright.sync_api import expect

from perfkit.measuring.paths import ROOT
from perfkit.report.links import Site
from perfkit.report.site import write_index

TOKEN = "of-a-test"
SECONDS = 180
CHANGED = {
    "device": "cpu",
    "batch_size": 2,
    "image_size": 32,
    "input": "synthetic",
    "warmup_steps": 1,
    "measured_steps": 8,
    "measured_seconds": 0,
    "repeats": 5,
}
"""Changes of the parameters cell."""
EXAMPLES = "outputs/examples"
PROGRESS = re.compile(r"repeat \d/5 (?:step \d+/9|window done, ending|done) ")
SETTINGS = {
    "notebook-extension/tracker": '{"windowingMode": "none"}',
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
"""JupyterLab renders all cells and fetches nothing from the network."""
OF_EXAMPLES = ("summary", "explore")
"""Notebooks to run on the examples."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="JupyterLab is not installed"),
]


def lab_options():
    """Return the options of `jupyter lab` in `make lab`."""
    command = ["make", "--dry-run", "--always-make", "lab"]
    output = subprocess.check_output(command, cwd=ROOT, text=True)
    (line,) = re.findall(r"jupyter lab (.*)", output.replace("\\\n", " "))
    return line.replace('"', "").split()


def changed_parameters(source):
    """Return the parameters cell's source with the values of CHANGED."""
    for name, value in CHANGED.items():
        line = rf"(?m)^{name}: \w+ = .*?(  #|$)"
        source, count = re.subn(line, rf"{name} = {value!r}\1", source)
        assert count == 1, name
    return source


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the repository's parts that the notebooks need, with changed parameters."""
    folder = tmp_path_factory.mktemp("lab") / "checkout"
    left_out = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "verified", "*.html")
    for name in ("perfkit", "notebooks", EXAMPLES):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in ("resnet50", *OF_EXAMPLES):
        path = folder / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(path, 4)
        (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
        if name in OF_EXAMPLES:
            cell.source = cell.source.replace('"outputs"', repr(EXAMPLES))
        else:
            cell.source = changed_parameters(cell.source)
        nbformat.write(notebook, path)
    return folder


@pytest.fixture(scope="module")
def lab(processes, checkout):
    """The address of a JupyterLab on the copy, whose notebooks use the fake trainer."""
    home = checkout.parent
    planted_folder = home / "planted"
    planted_folder.mkdir()
    (planted_folder / "sitecustomize.py").write_text(planted(2))
    for name, text in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": f"{planted_folder}:{checkout}",
        "JUPYTER_TOKEN": TOKEN,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    options = [word.replace(str(ROOT), str(checkout)) for word in lab_options()]
    command = [sys.executable, "-m", "jupyterlab", *options]
    command += ["--no-browser", "--allow-root", "--port", str(port), "--port-retries", "0"]
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(command, cwd=checkout, env=environment, stderr=log) as server,
    ):
        address = f"http://127.0.0.1:{port}"

        def answers():
            assert server.poll() is None
            with suppress(urllib.error.URLError):
                urllib.request.urlopen(f"{address}/api?token={TOKEN}").close()
                return True

        try:
            wait_for(answers, SECONDS)
            yield address
        finally:
            server.terminate()
            server.wait()


PROMPTS = ".jp-CodeCell .jp-InputPrompt"
CELLS = ".jp-OutputArea-output td"


def run_all(browser, address):
    """Open JupyterLab at this address, start Run All on its notebook and return the page."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(SECONDS * 1000)
    page.goto(f"{address}?token={TOKEN}")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    # Without a ready kernel, Run All would ask for one.
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('[data-command="runmenu:run-all"]').click()
    return page


@pytest.fixture(scope="module")
def tab(lab, browser):
    """The first notebook after Run All; `progress` is the progress shown meanwhile, which is in
    view where Run All ends."""
    page = run_all(browser, f"{lab}/")
    outputs = page.locator(".jp-Cell .jp-OutputArea-output")
    outputs.filter(has_text=PROGRESS).first.wait_for()
    expect(outputs.filter(has_text=PROGRESS).first).to_be_in_viewport()
    page.progress = outputs.filter(has_text=PROGRESS).first.inner_text()
    last = page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output")
    last.filter(has_text="images/s").first.wait_for()
    return page


def colours_of(figure):
    """Return a figure's colours except white, rounded to steps of 16, without the few pixels at
    the edges of text and lines."""
    image = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
    coarse = image.point(lambda value: value // 16 * 16)
    counted = coarse.getcolors(image.width * image.height)
    return {colour for count, colour in counted if count >= 15 and min(colour) < 240}


def assert_figures_have_colours(page):
    figures = page.locator(".jp-OutputArea-output :is(svg, img):visible")
    assert figures.count() > 0
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert box and box["width"] > 100 and box["height"] > 30
        colours = colours_of(figure)
        assert len(colours) > 3, colours
        assert any(max(colour) - min(colour) > 40 for colour in colours), colours


def assert_no_error(page):
    for kind in ("error", "stderr"):
        found = page.locator(f'[data-mime-type="application/vnd.jupyter.{kind}"]')
        assert found.all_inner_texts() == []


def test_make_lab_opens_the_first_notebook_at_the_repository_root(tab, checkout):
    assert tab.url.partition("?")[0].endswith("/lab/tree/notebooks/resnet50.ipynb")
    listed = tab.locator(".jp-DirListing-itemText").all_inner_texts()
    assert "resnet50.ipynb" in listed
    tab.locator(".jp-BreadCrumbs-home").click()
    tab.locator(".jp-DirListing-itemText").get_by_text("perfkit", exact=True).wait_for()


def test_run_all_shows_progress_figures_and_tables_without_errors(tab):
    assert re.search(r"repeat \d/5 .*images/s, \d+%, .* left", tab.progress)
    assert_no_error(tab)
    assert_figures_have_colours(tab)
    assert tab.locator(CELLS).count() > 50


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_run_all_on_the_examples_shows_figures_and_tables(lab, browser, name):
    page = run_all(browser, f"{lab}/lab/workspaces/{name}/tree/notebooks/{name}.ipynb")
    deadline, executed = time.monotonic() + SECONDS, re.compile(r"\[\d+\]:")
    while not all(map(executed.search, page.locator(PROMPTS).all_inner_texts())):
        assert_no_error(page)
        assert time.monotonic() < deadline, page.locator(PROMPTS).all_inner_texts()
        time.sleep(0.5)
    assert_no_error(page)
    assert_figures_have_colours(page)
    assert page.locator(CELLS).count() > 20
    page.close()


def test_notebook_links_lead_to_existing_files(tab):
    """Includes links to raw files, which lie beside a page but not beside a notebook."""
    links = tab.locator(".jp-OutputArea-output a[href]")
    addresses = links.evaluate_all("links => links.map(link => link.href)")
    files = [address for address in addresses if "/files/" in address]
    assert any(re.search(r"rank0\.jsonl", address) for address in files)
    for address in files:
        assert tab.request.get(address).ok, address


def open_from_its_link(place, context):
    """Click the last link to a measurement's page in `place`; return the browser tab it opens
    and the page's heading."""
    with context.expect_page() as opened:
        place.locator("a[href*='/report.html']").last.click()
    opened.value.set_default_timeout(SECONDS * 1000)
    return opened.value, opened.value.get_by_role("heading", level=1).inner_text()


def test_the_last_output_is_the_number_and_a_link_to_the_page(tab, checkout):
    last = tab.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output").last
    (page,) = (checkout / "outputs").glob("*/report.html")
    assert re.search(r"[\d.]+ images/s ± [\d.]+ %, median of n=5", last.inner_text())
    assert f"outputs/{page.parent.name}/report.html" in last.inner_text()
    opened, heading = open_from_its_link(last, tab.context)
    assert heading.startswith("ResNet-50")
    opened.get_by_role("link", name="All measurements").click()
    opened.get_by_role("heading", name="Training throughput: 1 measurement").wait_for()
    opened.get_by_role("link", name="中文").click()
    opened.get_by_role("link", name="English").wait_for()
    assert "/index.zh.html?_xsrf=" in opened.url
    opened.close()


def test_a_page_in_the_viewer_says_what_its_links_need_and_opens_them_in_tabs(
    lab, browser, checkout
):
    examples = checkout / EXAMPLES
    for page in (ROOT / EXAMPLES).glob("bert-*/report.html"):
        shutil.copy(page, examples / page.parent.name)
    write_index(Site(examples))
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.set_default_timeout(SECONDS * 1000)
    tab.goto(f"{lab}/lab/workspaces/viewer/tree/{EXAMPLES}/index.html?token={TOKEN}")
    viewer = tab.frame_locator(".jp-HTMLViewer iframe")
    hint = viewer.locator("noscript p")
    hint.wait_for()
    assert "the links on this page work once Trust HTML, above, is pressed" in hint.inner_text()
    tab.get_by_role("button", name="Trust HTML").click()
    hint.wait_for(state="detached")
    viewer.get_by_role("searchbox").fill("bert")
    expect(viewer.get_by_role("row", name=re.compile("^ResNet-50"))).to_have_count(0)
    _opened, heading = open_from_its_link(viewer, tab.context)
    assert heading.startswith("BERT-base")

"""Notebooks and `perfkit run` through papermill, at a small image size."""

import base64
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import nbformat
import psutil
import pytest
from bs4 import BeautifulSoup
from conftest import SMALL, as_options, cell_sources, cli
from drivers import started_steps
from fake_trainer import planted
from made.clusters import wait_for
from made.results import forget_repeats, stored
from nbclient import NotebookClient
from papermill import inspect_notebook
from PIL import Image

from perfkit.cli.notebook import model_notebook
from perfkit.measuring.format import minute, number
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request.described import described
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.system.scratch import sweep
from perfkit.measuring.work import SCRIPT
from perfkit.report.measurement import write_measurement
from perfkit.report.pages import OWN
from perfkit.training.models import MODELS, model_named

sys.path.insert(0, str(ROOT / "docs"))
import reference

NOTEBOOK = ROOT / "notebooks" / "resnet50.ipynb"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FUSED = re.compile(r"\d\.\d{2,}\.\d")
"""Two numbers without a separator, as in 6.9235.858."""


def run(command, **options):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def fake(processes, tmp_path_factory):
    """The environment variables under which a fake trainer replaces training."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "sitecustomize.py").write_text(planted(0.1))
    return os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"}


def request(outputs, **changes):
    return SMALL | {"input": "synthetic", "outputs_dir": str(outputs)} | changes


def measured(outputs):
    (path,) = Path(outputs).glob("*/result.json")
    return Measurement.read(path.parent)


PERFKIT = [sys.executable, "-c", "from perfkit.cli import main; main()"]
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Python keeps ignoring SIGINT if its parent did, as for a background job."""


@pytest.fixture(scope="module")
def papermilled(fake, tmp_path_factory):
    """The finished `papermill --log-output`, the outputs folder and the executed notebook."""
    folder = tmp_path_factory.mktemp("papermill")
    words = as_options(request("outputs", repeats=5, measured_steps=8))
    command = [sys.executable, "-m", "papermill", NOTEBOOK, "executed.ipynb"]
    done = run([*command, "--log-output", *words], env=fake, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done, folder / "outputs", folder / "executed.ipynb"


@pytest.fixture(scope="module")
def ran(fake, tmp_path_factory):
    """The standard output of `perfkit run`, its terminal lines and the outputs folder."""
    folder = tmp_path_factory.mktemp("run")
    command = [*PERFKIT, "run", "resnet50", *as_options(request("outputs", repeats=5))]
    printed, lines = in_terminal(command, fake, folder)
    return printed, lines, folder / "outputs"


def outcome_line(measurement):
    value = number(measurement.result.throughput.value)
    return f"{value} images/s", f"{measurement.folder.name}/report.html"


def test_the_last_output_and_log_lines_are_the_outcome(papermilled):
    done, outputs, executed = papermilled
    value, page = outcome_line(measured(outputs))
    assert (
        value in (outputs / page).read_text() and page in (outputs / "index.html").read_text()
    )
    assert (outputs / page).with_name("notebook.ipynb").exists()
    *_, output = nbformat.read(executed, 4).cells[-1].outputs
    last = output.data["text/plain"]
    # Papermill's own line about the end of the cell follows.
    begun, ended = re.findall(r"(?:Executing|Ending) Cell", done.stderr)[-2:]
    assert re.search(f"{begun} .*\n{re.escape(last)}\n{ended} ", done.stderr)
    assert re.search(r"^\s*repeat 5/5 done .* images/s, .* left", done.stderr, re.MULTILINE)
    first, *_warnings, path = last.splitlines()
    assert first.startswith(value) and path.endswith(page)
    assert "warning" in last
    assert value in output.data["text/html"]


def test_the_executed_notebook_keeps_one_line_of_the_progress(papermilled):
    """Viewers such as VS Code do not overwrite a line at a carriage return."""
    outputs = [
        out
        for cell in nbformat.read(papermilled[2], 4).cells
        for out in cell.get("outputs", [])
    ]
    stored = "".join(output.text for output in outputs if output.output_type == "stream")
    assert re.fullmatch(r"\r?repeat 5/5 done .* 0:00:00 left\s*", stored)


def in_terminal(command, environment, folder):
    """Run the command in a terminal, in `folder`. Return its standard output, which is piped,
    and the final lines of the terminal."""
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    streams = {"stdin": terminal, "stdout": subprocess.PIPE, "stderr": terminal}
    streams |= {"cwd": folder, "text": True}
    with subprocess.Popen(command, env=environment, **streams) as process:
        os.close(terminal)
        chunks = iter(lambda: _read(reader), b"")
        text = b"".join(chunks).decode()
        printed = process.stdout.read()
    os.close(reader)
    assert process.returncode == 0, text
    lines = ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return printed, [line.rpartition("\r")[2].rstrip() for line in lines if line.strip()]


def _read(terminal):
    """Read the available bytes; empty at the end, which Linux reports as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_perfkit_run_prints_throughput_warnings_and_page(ran):
    printed, lines, outputs = ran
    measurement = measured(outputs)
    assert printed.strip() == str(measurement.folder / "report.html")
    (progress,) = (line for line in lines if line.startswith("repeat 5/5 done"))
    assert re.search(r"images/s, 100%, 0:00:00 left$", progress)
    value, _page = outcome_line(measurement)
    (shown,) = (place for place, line in enumerate(lines) if line.startswith(value))
    words = rf"{value} ± [\d.]+ %, median of n=5"
    assert re.fullmatch(words, lines[shown])
    warned = " ".join(line.strip() for line in lines[shown + 1 :])
    one = r"[a-z_]+ \((error|caution|notice)\)"
    assert re.fullmatch(rf"\d+ warnings?: {one}(, {one})*|No warnings", warned)


@pytest.mark.slow
def test_a_continued_run_says_how_many_repeats_are_finished(fake, tmp_path):
    words = as_options(request(tmp_path / "outputs", repeats=2))
    command = [*PERFKIT, "run", "resnet50", *words]
    assert "Finished repeats" not in run(command, env=fake).stderr
    forget_repeats(measured(tmp_path / "outputs").folder, after=1)
    continued = run(command, env=fake)
    assert continued.returncode == 0, continued.stderr
    assert "Finished repeats: 1 of 2" in continued.stderr
    complete = run(command, env=fake)
    assert complete.returncode == 0, complete.stderr
    (told,) = re.findall("Already measured on .*", complete.stderr)
    created = measured(tmp_path / "outputs").result.created
    assert told == f"Already measured on {minute(created)}; -p label NAME measures again"


@pytest.mark.slow
def test_ctrl_c_keeps_finished_repeats_and_leaves_no_traceback_or_process(
    small, plant, worker_processes
):
    plant(planted(60))
    request = small(input="synthetic", measured_steps=100)
    outputs = Path(request["outputs_dir"])
    command = INTERRUPTIBLE + PERFKIT[2]
    with subprocess.Popen(
        [sys.executable, "-c", command, "run", "resnet50", *as_options(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        wait_for(lambda: started_steps(outputs))
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("ipykernel_launcher" in child.cmdline() for child in children)
        # Signal the whole process group, as a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    measuring, interrupted, page = output.splitlines()
    assert measuring.startswith("Measuring ")
    assert interrupted.startswith("Interrupted before a repeat was finished;")
    assert page == f"Page: {measured(outputs).page_file}"
    assert measured(outputs).result.failure.code == "interrupted"
    assert not worker_processes()
    assert [child for child in children if child.is_running()] == []


def described_cells(output):
    """Return the cells of tables and paragraphs, except those of the environment, which hold
    version numbers."""
    cells = []
    for cell in output.select("td, th, p, li"):
        if not cell.find_parent("details", id="Environment"):
            cells.append(cell)
    return cells


def pictures_of(path):
    """Return the PNG outputs of a notebook, in base64."""
    pictures = []
    for cell in nbformat.read(path, 4).cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                pictures.append(output.data["image/png"])
    return pictures


def test_an_executed_notebook_renders_in_nbconverts_default_template(papermilled):
    executed = papermilled[2]
    convert = [sys.executable, "-m", "nbconvert", "--to", "html", str(executed)]
    done = run(convert)
    assert done.returncode == 0, done.stderr
    page = BeautifulSoup(executed.with_suffix(".html").read_text(), "html.parser")
    # nbconvert's template has CSS variables outside the outputs.
    outputs = page.select(".jp-OutputArea-output")
    assert len(outputs) > 5
    assert [str(output) for output in outputs if "var(--" in str(output)] == []
    texts = [cell.get_text() for output in outputs for cell in described_cells(output)]
    assert len(texts) > 50
    assert [text for text in texts if FUSED.search(text)] == []
    images = page.select('.jp-RenderedSVG img[src^="data:image/svg+xml;base64,"]')
    for image in images:
        figure = base64.b64decode(image["src"].partition(",")[2]).decode()
        assert "var(--" not in figure
        assert len({*re.findall(r"(?:fill|stroke): ?(#\w{6})", figure)}) > 3
    pictures = pictures_of(executed)
    assert len(pictures) == len(images) > 0
    for picture in pictures:
        image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
        assert len(image.getcolors(image.width * image.height)) > 3


def test_all_wrong_parameters_are_reported_by_the_first_cell(papermill, tmp_path):
    done = run([*papermill, "-p", "gpu", "8", "-p", "input", "dalli", "-p", "batch_size", "0"])
    assert done.returncode != 0
    for text in ("did you mean 'gpus'", "did you mean 'dali'", "batch_size: 0 is out of range"):
        assert text in done.stderr
    executed = nbformat.read(tmp_path / "executed.ipynb", 4)
    ran = [c for c in executed.cells if c.cell_type == "code" and c.get("execution_count")]
    assert "perfkit.plan" in ran[-1].source


@pytest.mark.slow
def test_a_failed_measurement_fails_papermill_and_writes_its_page(papermill, tmp_path):
    outputs = tmp_path / "outputs"
    done = run([*papermill, *as_options(request(outputs, timeout=1))])
    assert done.returncode != 0
    assert "timeout: repeat 1 took over 1 s" in done.stderr
    assert measured(outputs).result.status == "failed"
    page = (measured(outputs).folder / "report.html").read_text()
    assert "timeout" in page and "a longer limit: -p timeout 2" in page


def test_the_notebook_runs_interactively_and_shows_progress(tmp_path, fake, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", fake["PYTHONPATH"])
    notebook = nbformat.read(NOTEBOOK, 4)
    lines = [f"{name} = {value!r}" for name, value in request(tmp_path).items()]
    cells = {cell.metadata.tags[0]: cell for cell in notebook.cells if "tags" in cell.metadata}
    cells["parameters"].source += "\n" + "\n".join(lines)
    # Running the planning cell again must accept the names that the notebook defined.
    notebook.cells.append(nbformat.v4.new_code_cell(cells["plan"].source))
    client = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    progress = "".join(output.text for output in cells["measure"].outputs)
    assert {output.name for output in cells["measure"].outputs} == {"stdout"}
    assert re.search(r"\rrepeat 1/1 done .* images/s, 100%, .* left\n$", progress)
    assert measured(tmp_path).result.status == "complete"


@pytest.mark.parametrize("model", MODELS)
def test_model_notebooks_differ_only_in_title_parameters_and_model(model):
    own, others = cell_sources(NOTEBOOK.with_stem(model)), cell_sources(NOTEBOOK)
    assert own.pop(0) == f"# {model_named(model).name}: training throughput"
    del own[2], others[0], others[2]
    assert [source.replace(f'"{model}"', '"resnet50"') for source in own] == others
    cells = nbformat.read(NOTEBOOK.with_stem(model), 4).cells
    assert not any(cell.outputs for cell in cells if cell.cell_type == "code")


def test_parameters_cells_are_up_to_date():
    for path, text in reference.notebooks().items():
        assert path.read_text() == text, "refresh it: make docs"


@pytest.mark.parametrize("work", [*MODELS, SCRIPT])
def test_a_parameters_cell_has_what_the_model_takes_with_type_default_and_help(work):
    """As `papermill --help-notebook` reads it."""
    values = model_notebook(work).values
    of_work = described(work)
    assert values.keys() == {p.name for p in of_work}
    assert [p.name for p in of_work if values[p.name] != p.default] == []
    shown = inspect_notebook(NOTEBOOK.with_stem(work))
    first = "script" if work == SCRIPT else "framework"
    assert next(iter(shown)) == first, "those changed most first"
    types = {name: parameter["inferred_type_name"] for name, parameter in shown.items()}
    assert types == {parameter.name: parameter.type for parameter in of_work}
    assert [name for name in shown if len(shown[name]["help"]) < 10] == []


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_perfkit_run_measures_bert_on_sample_sequences(tmp_path):
    data = str(tmp_path / "sequences")
    done = cli("samples", data, "--for", "bert", "--count", "20", "--sequence-length", "32")
    assert done.exit_code == 0, done.stderr
    outputs = tmp_path / "outputs"
    words = SMALL | {"data_dir": data, "sequence_length": 32, "dataloader_workers": 1}
    del words["image_size"]
    done = run([*PERFKIT, "run", "bert", *as_options(words | {"outputs_dir": str(outputs)})])
    assert done.returncode == 0, done.stderr
    result = measured(outputs).result
    assert (result.throughput.unit, result.input_data.samples) == ("sequences/s", 20)
    assert "32 tokens" in Path(done.stdout.strip()).read_text()


@pytest.fixture
def own_notebook(tmp_path):
    """A copy of the ResNet-50 notebook with a changed batch size and an added cell."""
    notebook = nbformat.read(NOTEBOOK, 4)
    cells = {cell.metadata.tags[0]: cell for cell in notebook.cells if "tags" in cell.metadata}
    source = cells["parameters"].source
    cells["parameters"].source = source.replace("batch_size: int = None", "batch_size: int = 3")
    added = nbformat.v4.new_code_cell('print("the repeats:", len(measurement.result.repeats))')
    notebook.cells.insert(-1, added)
    path = tmp_path / "my" / "resnet50.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    return path


@pytest.mark.slow
def test_perfkit_run_shows_cells_added_to_a_notebook_copy(own_notebook, tmp_path, fake):
    outputs = tmp_path / "outputs"
    words = request(outputs)
    del words["batch_size"]
    done = run([*PERFKIT, "run", own_notebook, *as_options(words)], env=fake)
    assert done.returncode == 0, done.stderr
    measurement = measured(outputs)
    assert measurement.result.config.work.batch_size == 3
    assert done.stdout.strip() == str(measurement.page_file)
    assert "the repeats: 1" in measurement.page_file.read_text()
    kept = nbformat.read(measurement.folder / "notebook.ipynb", 4)
    assert kept.metadata[OWN]
    assert any("the repeats:" in cell.source for cell in kept.cells)
    # Rebuilt pages keep the cell.
    write_measurement(measurement)
    assert "the repeats: 1" in measurement.page_file.read_text()


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("no cell does", lambda source: source.replace('perfkit.plan("resnet50"', "f(")),
        (
            "only assign literals",
            lambda source: source.replace("seed: int = 0", "seed = 2 * 8"),
        ),
    ],
)
def test_perfkit_run_rejects_a_notebook_without_one_clear_plan(own_notebook, expected, change):
    notebook = nbformat.read(own_notebook, 4)
    for cell in notebook.cells:
        if {"plan", "parameters"} & {*cell.metadata.get("tags", ())}:
            cell.source = change(cell.source)
    nbformat.write(notebook, own_notebook)
    done = cli("run", str(own_notebook))
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "nowhere/resnet50.ipynb"], "No such file"),
        (["run", "text.ipynb"], "not a notebook"),
        (["report", "/nowhere/at/all"], "make report"),
    ],
)
def test_a_wrong_request_exits_with_2_and_the_reason(tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.ipynb").write_text("a text")
    done = cli(*words)
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.split())


@pytest.mark.usefixtures("processes")
def test_the_command_without_its_libraries_names_what_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('no click', name='click')")
    command = [sys.executable, "-c", "from perfkit.entry import main; main()"]
    done = run(command, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr == (
        "perfkit: the commands need click; to install: "
        f"{sys.executable} -m pip install 'perfkit[report]'\n"
    )


NEVER_READY = """
import os, pathlib, sys, time
parent = os.getppid()
pathlib.Path(sys.argv[1]).touch()
while os.getppid() == parent:
    time.sleep(0.1)
"""


@pytest.fixture
def starting_kernel(processes, tmp_path, own_notebook):
    """`perfkit run`, in a temporary folder of its own, while its kernel starts."""
    kernel = tmp_path / "kernels" / "slow"
    kernel.mkdir(parents=True)
    started = tmp_path / "started"
    command = [sys.executable, "-c", NEVER_READY, str(started)]
    spec = {"argv": command, "display_name": "slow", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    notebook = nbformat.read(own_notebook, 4)
    notebook.metadata.kernelspec.name = "slow"
    nbformat.write(notebook, own_notebook)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    places = {"JUPYTER_PATH": str(tmp_path), "TMPDIR": str(temporary)}
    program = INTERRUPTIBLE + PERFKIT[2]
    words = as_options(request(tmp_path / "outputs"))
    with subprocess.Popen(
        [sys.executable, "-c", program, "run", str(own_notebook), *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | places,
    ) as process:
        wait_for(started.exists)
        yield process
        process.kill()


def test_an_interrupt_while_the_kernel_starts_ends_the_run_with_130(starting_kernel, tmp_path):
    (kernel,) = psutil.Process(starting_kernel.pid).children()
    starting_kernel.send_signal(signal.SIGINT)
    _measuring, interrupted = starting_kernel.communicate(timeout=60)[1].splitlines()
    assert interrupted.startswith("Interrupted before a repeat was finished;")
    assert starting_kernel.returncode == 130
    assert not kernel.is_running()
    assert not [*(tmp_path / "temporary").iterdir()]


def test_after_a_kill_the_next_start_removes_the_kernels_key(
    starting_kernel, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    assert [*temporary.glob("*/kernel.json")]
    starting_kernel.kill()
    starting_kernel.wait()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    sweep()
    assert not [*temporary.iterdir()]


def test_perfkit_run_help_lists_the_parameters_of_a_model():
    text = cli("run", "bert", "--help").stdout
    assert "  sequence_length=" in text
    assert "  image_size=" not in text and "  sharding=" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_perfkit_report_rebuilds_pages_from_results_alone(monkeypatch, tmp_path):
    page = stored(tmp_path / "outputs" / "m").page_file
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    without = "import sys; sys.modules.update({'paddle': None, 'nvidia': None});"
    done = run([*PERFKIT[:2], f"{without} {PERFKIT[2]}", "report", tmp_path / "outputs"])
    assert done.returncode == 0, done.stderr
    assert page.exists()
    assert not [*temporary.iterdir()]

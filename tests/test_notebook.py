"""The whole way through papermill, as users write it, at a small image size."""

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
from click.testing import CliRunner
from conftest import as_options, cell_sources
from fake_trainer import launcher_command, planted
from nbclient import NotebookClient
from papermill import inspect_notebook
from PIL import Image
from test_driver import started_steps, wait_for

import perfkit
from perfkit.cli import main
from perfkit.config import ROOT, parameters
from perfkit.models import MODELS
from perfkit.report.pages import OWN
from perfkit.results.store import Measurement
from perfkit.text.format import number

sys.path.insert(0, str(ROOT / "docs"))
import reference

NOTEBOOK = ROOT / "notebooks" / "resnet50.ipynb"
FUSED = re.compile(r"\d\.\d{2,}\.\d")
"""Two numbers without anything between, as in 6.9235.858."""
each_model = pytest.mark.parametrize("model", MODELS)


def run(command, **options):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture
def cli(processes):
    """The `perfkit` command, run to its end."""

    def ended(*words):
        return run([sys.executable, "-c", "from perfkit.cli import main; main()", *words])

    return ended


@pytest.fixture
def fake_trainer(plant):
    """Every repeat of a notebook takes no time instead of training."""
    plant(planted(0.1))


def measured(outputs):
    (path,) = Path(outputs).glob("*/result.json")
    return Measurement.read(path.parent)


def test_papermill_measures_and_leaves_result_page_notebook_and_index(papermill, small):
    request = small(repeats=2)
    done = run([*papermill, *as_options(request)])
    assert done.returncode == 0, done.stderr
    measurement = measured(request["outputs_dir"])
    assert measurement.result.status == "complete"
    page = (measurement.folder / "report.html").read_text()
    value = f"{measurement.result.throughput.value:#.4g}".rstrip(".")
    assert value in page
    assert (measurement.folder / "notebook.ipynb").exists()
    index = (measurement.folder.parent / "index.html").read_text()
    assert f"{measurement.folder.name}/report.html" in index


def test_without_an_output_path_results_still_land_in_outputs(papermill, small, fake_trainer):
    request = small(input="synthetic")
    done = run([*papermill[:-1], *as_options(request)])
    assert done.returncode == 0, done.stderr
    # With standard output not a terminal, papermill writes the executed notebook to it.
    assert nbformat.reads(done.stdout, 4).cells
    assert measured(request["outputs_dir"]).result.status == "complete"


def outcome_line(measurement):
    """What the last line begins with and ends in."""
    value = number(measurement.result.throughput.value)
    return f"{value} images/s", f"{measurement.folder.name}/report.html"


def test_the_last_output_and_the_last_line_logged_is_the_outcome(
    papermill, small, fake_trainer, tmp_path
):
    request = small(input="synthetic")
    done = run([*papermill, "--log-output", *as_options(request)])
    assert done.returncode == 0, done.stderr
    value, page = outcome_line(measured(request["outputs_dir"]))
    # What follows is papermill's: that the cell has ended.
    (last,) = re.findall(rf"^{value}.*", done.stderr, re.MULTILINE)
    begun, ended = re.findall(r"(?:Executing|Ending) Cell", done.stderr)[-2:]
    assert re.search(f"{begun} .*\n{re.escape(last)}\n{ended} ", done.stderr)
    assert re.search(r"^\s*repeat 1/1 step 3/3 .* images/s .* left", done.stderr, re.MULTILINE)
    assert "warning" in last
    assert last.endswith(page)
    *_, output = nbformat.read(tmp_path / "executed.ipynb", 4).cells[-1].outputs
    assert output.data["text/plain"] == last
    assert value in output.data["text/html"]


def in_terminal(command):
    """What a terminal shows of the command, line by line, as they stand in the end."""
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        chunks = iter(lambda: _read(reader), b"")
        text = b"".join(chunks).decode()
    os.close(reader)
    assert process.returncode == 0, text
    lines = text.replace("\r\n", "\n").split("\n")
    return [line.rpartition("\r")[2] for line in lines if line.strip()]


def _read(terminal):
    """What there is; nothing at the end, which Linux tells by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_terminal_has_papermills_own_bar_alone(papermill, small, fake_trainer):
    """Nothing else writes to it; `--log-output` shows more."""
    lines = in_terminal([*papermill, *as_options(small(input="synthetic"))])
    assert any(line.startswith("Executing: 100%") for line in lines)
    assert [line for line in lines if "images/s" in line] == []


def test_a_terminal_has_the_last_lines_of_perfkit_run_once(small, fake_trainer):
    request = small(input="synthetic")
    command = "from perfkit.cli import main; main()"
    lines = in_terminal(
        [sys.executable, "-c", command, "run", "resnet50", *as_options(request)]
    )
    value, page = outcome_line(measured(request["outputs_dir"]))
    assert lines[-1].endswith(page)
    (progress,) = (line for line in lines if line.startswith("repeat 1/1 step 3/3"))
    assert re.search(r"images/s \|#+\| 00:00 left$", progress)
    assert len([line for line in lines if line.startswith(value)]) == 1


def test_ctrl_c_ends_perfkit_run_with_what_was_measured_without_a_stack_or_a_process(
    small, plant, worker_processes
):
    plant(planted(60))
    request = small(input="synthetic", measured_steps=100)
    outputs = Path(request["outputs_dir"])
    command = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command += "from perfkit.cli import main; main()"
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
        # As a terminal does it, for a whole group of processes.
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    measuring, interrupted, page = said.splitlines()
    assert measuring.startswith("Measuring ")
    assert interrupted.startswith("Interrupted; finished repeats are kept")
    assert page.endswith("report.html")
    assert measured(outputs).result.failure.code == "interrupted"
    assert not worker_processes()
    assert [child for child in children if child.is_running()] == []


def test_an_executed_notebook_stands_by_itself_in_nbconverts_own_template(
    papermill, small, fake_trainer, tmp_path
):
    done = run([*papermill, *as_options(small(input="synthetic", repeats=5, measured_steps=8))])
    assert done.returncode == 0, done.stderr
    executed = tmp_path / "executed.ipynb"
    convert = [sys.executable, "-m", "nbconvert", "--to", "html", str(executed)]
    done = run(convert)
    assert done.returncode == 0, done.stderr
    page = BeautifulSoup(executed.with_suffix(".html").read_text(), "html.parser")
    # Its template has variables of its own, for what is around the outputs.
    outputs = page.select(".jp-OutputArea-output")
    assert len(outputs) > 12
    assert [str(output) for output in outputs if "var(--" in str(output)] == []
    cells = [cell for output in outputs for cell in output.select("td, th, p, li")]
    about = {cell: cell.find_previous("h2") for cell in cells}
    # What stands there are versions of programs.
    cells = [c for c in cells if about[c] is None or "Environment" not in about[c].text]
    assert len(cells) > 50
    assert [cell.get_text() for cell in cells if FUSED.search(cell.get_text())] == []
    figures = [
        base64.b64decode(image["src"].partition(",")[2]).decode()
        for image in page.select('.jp-RenderedSVG img[src^="data:image/svg+xml;base64,"]')
    ]
    assert figures
    for figure in figures:
        assert "var(--" not in figure
        assert len({*re.findall(r"(?:fill|stroke): ?(#\w{6})", figure)}) > 3
    pictures = [
        output.data["image/png"]
        for cell in nbformat.read(executed, 4).cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == len(figures)
    for picture in pictures:
        image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
        assert len(image.getcolors(image.width * image.height)) > 3


def test_more_gpus_than_there_are_ends_non_zero_and_says_how_to_run_on_the_cpu(papermill):
    done = run([*papermill, "-p", "gpus", "64"])
    assert done.returncode != 0
    assert "gpus: 64 asked for, and this machine shows" in done.stderr
    assert "-p device cpu" in done.stderr


def test_all_wrong_parameters_are_refused_in_the_first_cell(papermill, tmp_path):
    done = run([*papermill, "-p", "gpu", "8", "-p", "input", "dalli", "-p", "batch_size", "0"])
    assert done.returncode != 0
    for told in ("did you mean 'gpus'", "did you mean 'dali'", "batch_size: 0 is out of range"):
        assert told in done.stderr
    executed = nbformat.read(tmp_path / "executed.ipynb", 4)
    ran = [c for c in executed.cells if c.cell_type == "code" and c.get("execution_count")]
    assert "perfkit.plan" in ran[-1].source


def test_a_failed_measurement_ends_papermill_non_zero_with_its_page_written(papermill, small):
    request = small(input="synthetic", timeout=1)
    done = run([*papermill, *as_options(request)])
    assert done.returncode != 0
    assert "timeout: repeat 1 took over 1 s" in done.stderr
    measurement = measured(request["outputs_dir"])
    assert measurement.result.status == "failed"
    page = (measurement.folder / "report.html").read_text()
    assert "no number" in page
    assert "timeout" in page


def test_the_notebook_runs_by_hand_from_its_own_folder_and_shows_progress(small, fake_trainer):
    notebook = nbformat.read(NOTEBOOK, 4)
    request = small(input="synthetic")
    lines = "\n".join(f"{name} = {value!r}" for name, value in request.items())
    cells = {cell.metadata.tags[0]: cell for cell in notebook.cells if "tags" in cell.metadata}
    cells["parameters"].source += "\n" + lines
    client = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    progress = "".join(output.text for output in cells["measure"].outputs)
    assert {output.name for output in cells["measure"].outputs} == {"stdout"}
    assert re.search(r"\rrepeat 1/1 step 3/3 .* images/s .* left\n$", progress)
    assert measured(request["outputs_dir"]).result.status == "complete"
    # Running the planning cell again must not trip over what the notebook itself defined.
    client = NotebookClient(notebook)
    with client.setup_kernel():
        for cell in (cells["parameters"], cells["plan"], cells["measure"], cells["plan"]):
            client.execute_cell(cell, notebook.cells.index(cell))


def notebook_of(model):
    return ROOT / "notebooks" / f"{model}.ipynb"


def tagged(path, tag):
    """The cells of a notebook with this tag."""
    cells = nbformat.read(path, 4).cells
    return [cell for cell in cells if tag in cell.metadata.get("tags", ())]


@each_model
def test_the_parameters_cell_has_every_parameter_with_its_default(model):
    (cell,) = tagged(notebook_of(model), "parameters")
    values: dict = {}
    exec(cell.source, values)
    values.pop("__builtins__")
    assert values == {name: default for name, (default, _meaning) in parameters().items()}


def test_the_parameters_cells_are_what_the_code_writes_now():
    for path, text in reference.notebooks().items():
        assert path.read_text() == text, "refresh it: make docs"


@each_model
def test_papermill_shows_the_meaning_of_every_parameter_those_changed_most_first(model):
    shown = inspect_notebook(notebook_of(model))
    assert [*shown][:3] == ["framework", "batch_size", "gpus"]
    assert {*shown} == {*parameters()}
    assert [name for name, one in shown.items() if len(one["help"]) < 10] == []
    assert max(map(len, reference.parameters_cell().splitlines())) <= 96


@each_model
def test_the_notebook_begins_with_what_to_change(model):
    heading, introduction, cell = nbformat.read(notebook_of(model), 4).cells[:3]
    assert heading.source.startswith("# ")
    assert introduction.metadata.tags == ["introduction"]
    assert introduction.source.count(". ") + introduction.source.count(".\n") == 1
    assert cell.metadata.tags == ["parameters"]


@each_model
def test_the_notebook_is_thin_and_has_no_outputs(model):
    notebook = nbformat.read(notebook_of(model), 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code)
    assert [c.source for c in code if re.search(r"(?m)^\s*(def|class|for|if) ", c.source)] == []
    for cell in code:
        if "show" in cell.metadata.tags:
            compile(cell.source, "show", "eval")


@each_model
def test_the_notebooks_differ_in_title_and_model_alone(model):
    own, others = cell_sources(notebook_of(model)), cell_sources(NOTEBOOK)
    assert own[0] == f"# {MODELS[model].name}: training throughput"
    assert [source.replace(f'"{model}"', '"resnet50"') for source in own[1:]] == others[1:]


@pytest.mark.slow
def test_perfkit_run_measures_bert_on_sample_sequences(cli, small, tmp_path):
    data = tmp_path / "sequences"
    made = cli(
        "samples", str(data), "--for", "bert", "--count", "20", "--sequence-length", "32"
    )
    assert made.returncode == 0, made.stderr
    request = small(data_dir=str(data), sequence_length=32, dataloader_workers=1)
    del request["image_size"]
    done = cli("run", "bert", *as_options(request))
    assert done.returncode == 0, done.stderr
    result = measured(request["outputs_dir"]).result
    assert (result.throughput.unit, result.input_data.samples) == ("sequences/s", 20)
    assert "32 tokens" in Path(done.stdout.strip()).read_text()


def test_perfkit_run_does_the_same_and_keeps_the_executed_notebook(cli, small, fake_trainer):
    request = small(input="synthetic")
    done = cli("run", "resnet50", *as_options(request))
    assert done.returncode == 0, done.stderr
    measurement = measured(request["outputs_dir"])
    assert done.stdout.strip() == str(measurement.folder / "report.html")
    assert (measurement.folder / "logs" / "papermill.ipynb").exists()
    assert measurement.result.config.label == ""


def test_the_last_lines_of_perfkit_run_are_number_interval_warnings_and_page(
    cli, small, fake_trainer
):
    done = cli("run", "resnet50", *as_options(small(input="synthetic", repeats=5)))
    assert done.returncode == 0, done.stderr
    *_, number, warned = re.sub(r",\n", ", ", done.stderr).splitlines()
    value = r"[\d.,]+"
    words = rf"{value} images/s, median of n=5; 93.75 % interval {value} to {value}"
    assert re.fullmatch(words, number)
    assert re.fullmatch(r"\d+ warnings?: [a-z_, ]+|No warnings", warned)
    assert done.stdout.splitlines()[-1].endswith("/report.html")


@pytest.fixture
def own_notebook(tmp_path):
    """A copy of the ResNet-50 notebook as a user changes it: a batch size, and a cell more."""
    notebook = nbformat.read(NOTEBOOK, 4)
    cells = {cell.metadata.tags[0]: cell for cell in notebook.cells if "tags" in cell.metadata}
    source = cells["parameters"].source
    cells["parameters"].source = source.replace("batch_size = None", "batch_size = 3")
    added = nbformat.v4.new_code_cell('print("the repeats:", len(measurement.result.repeats))')
    notebook.cells.insert(-1, added)
    path = tmp_path / "my" / "resnet50.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    return path


def test_perfkit_run_of_a_copy_has_the_cells_that_were_added_on_its_page(
    cli, small, fake_trainer, own_notebook
):
    request = small(input="synthetic")
    del request["batch_size"]
    done = cli("run", str(own_notebook), *as_options(request))
    assert done.returncode == 0, done.stderr
    measurement = measured(request["outputs_dir"])
    assert measurement.result.config.batch_size == 3
    assert done.stdout.strip() == str(measurement.folder / "report.html")
    assert "the repeats: 1" in (measurement.folder / "report.html").read_text()
    kept = nbformat.read(measurement.folder / "notebook.ipynb", 4)
    assert kept.metadata[OWN]
    assert any("the repeats:" in cell.source for cell in kept.cells)
    # Pages made again later have it too.
    again = cli("report", request["outputs_dir"])
    assert again.returncode == 0, again.stderr
    assert "the repeats: 1" in (measurement.folder / "report.html").read_text()


def test_perfkit_run_of_a_copy_that_fails_ends_with_1_and_names_its_page(
    cli, small, own_notebook
):
    done = cli("run", str(own_notebook), *as_options(small(input="synthetic", timeout=1)))
    assert done.returncode == 1
    assert "timeout" in done.stderr
    assert "report.html" in done.stderr


WRONG_NOTEBOOKS = [
    ("no cell has it", lambda source: source.replace('perfkit.plan("resnet50"', "f(")),
    ("several: bert, resnet50", lambda source: source + '\nperfkit.plan("bert", {})'),
    ("'resnet5' is not", lambda source: source.replace("resnet50", "resnet5")),
    ("to plain values", lambda source: source.replace("seed = 0", "seed = 2 * 8")),
]


@pytest.mark.parametrize(("told", "change"), WRONG_NOTEBOOKS)
def test_perfkit_run_refuses_a_notebook_that_it_can_not_judge(own_notebook, told, change):
    notebook = nbformat.read(own_notebook, 4)
    for cell in notebook.cells:
        if {"plan", "parameters"} & {*cell.metadata.get("tags", ())}:
            cell.source = change(cell.source)
    nbformat.write(notebook, own_notebook)
    done = CliRunner().invoke(main, ["run", str(own_notebook)])
    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere/resnet50.ipynb", "No such file"),
        ("text.ipynb", "not a notebook"),
        ("resnet", "model: 'resnet' is not"),
    ],
)
def test_perfkit_run_says_which_notebook_or_model_is_not_there(
    tmp_path, monkeypatch, name, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.ipynb").write_text("a text")
    done = CliRunner().invoke(main, ["run", name])
    assert done.exit_code == 2
    assert told in done.stderr


def test_perfkit_run_ends_with_1_when_a_run_fails_and_says_why(cli, small):
    done = cli("run", "resnet50", *as_options(small(input="synthetic", timeout=1)))
    assert done.returncode == 1
    assert "timeout" in done.stderr
    assert "report.html" in done.stderr
    assert "Traceback" not in done.stderr


def test_perfkit_run_ends_with_2_when_the_request_is_wrong(cli):
    done = cli("run", "resnet50", "-p", "gpu", "8", "-p", "label", "a b")
    assert done.returncode == 2
    assert "did you mean 'gpus'" in done.stderr
    assert "label: 'a b'" in done.stderr


def test_perfkit_run_help_names_every_parameter(cli):
    text = cli("run", "--help").stdout
    for name in parameters():
        assert f"  {name}=" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_label_that_looks_like_a_number_stays_text(cli, small):
    request = small(input="synthetic", timeout=1) | {"label": "2024"}
    cli("run", "resnet50", *as_options(request))
    assert measured(request["outputs_dir"]).result.config.label == "2024"


@pytest.mark.usefixtures("processes")
def test_perfkit_report_makes_pages_again_from_results_alone(small, monkeypatch, tmp_path):
    monkeypatch.setattr("perfkit.driver.workers.launcher_command", launcher_command(0.1))
    request = small(input="synthetic")
    plan = perfkit.plan("resnet50", request)
    folder = perfkit.measure(plan.config, plan.protocol).folder
    assert not (folder / "report.html").exists()
    (tmp_path / "outputs" / "broken").mkdir()
    (tmp_path / "outputs" / "broken" / "result.json").write_text("{")
    code = (
        "import sys; sys.modules.update({'paddle': None, 'nvidia': None});"
        "from perfkit.cli import main; main()"
    )
    done = run([sys.executable, "-c", code, "report", request["outputs_dir"]])
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").exists()
    assert "broken/result.json" in done.stderr
    assert "broken/result.json" in (tmp_path / "outputs" / "index.html").read_text()


def test_perfkit_report_of_a_folder_that_is_not_there_is_refused(cli):
    done = cli("report", "/nowhere/at/all")
    assert done.returncode == 2
    assert "make report" in done.stderr


def test_perfkit_samples_makes_data_once_and_touches_no_other(cli, tmp_path):
    folder = tmp_path / "data"
    made = cli("samples", str(folder), "--count", "3")
    assert made.returncode == 0, made.stderr
    assert "3 images" in made.stdout
    assert "already" in cli("samples", str(folder), "--count", "3").stdout
    other = cli("samples", str(folder), "--count", "4")
    assert other.returncode == 2
    assert "another data set" in other.stderr


def test_every_parameter_stands_in_the_notebook_that_is_stored_with_a_result(
    cli, small, fake_trainer
):
    request = small(input="synthetic")
    cli("run", "resnet50", *as_options(request))
    folder = measured(request["outputs_dir"]).folder
    source = next(s for s in cell_sources(folder / "notebook.ipynb") if "batch_size = 2" in s)
    assert all(f"{name} = " in source for name in parameters())
    json.loads((folder / "notebook.ipynb").read_text())


def test_an_interrupt_of_a_run_is_told_in_a_sentence(small, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("papermill.execute_notebook", interrupted)
    words = as_options(small(input="synthetic"))
    done = CliRunner().invoke(main, ["run", "resnet50", *words])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "Interrupted; finished repeats are kept, and the same command goes on."
    )

"""The whole way through papermill, as users write it, at a small image size."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from conftest import as_options, cell_sources
from fake_trainer import launcher_command, planted
from nbclient import NotebookClient

import perfkit
from perfkit.cli import main
from perfkit.config import ROOT, parameters
from perfkit.models import MODELS
from perfkit.results.files import Measurement

NOTEBOOK = ROOT / "notebooks" / "resnet50.ipynb"
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
    assert "time_out: repeat 1 took over 1 s" in done.stderr
    measurement = measured(request["outputs_dir"])
    assert measurement.result.status == "failed"
    page = (measurement.folder / "report.html").read_text()
    assert "no number" in page
    assert "time_out" in page


def test_the_notebook_runs_by_hand_from_its_own_folder_and_shows_progress(small, fake_trainer):
    notebook = nbformat.read(NOTEBOOK, 4)
    request = small(input="synthetic")
    lines = "\n".join(f"{name} = {value!r}" for name, value in request.items())
    cells = {cell.metadata.tags[0]: cell for cell in notebook.cells if "tags" in cell.metadata}
    cells["parameters"].source += "\n" + lines
    client = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    (progress,) = cells["measure"].outputs
    assert "repeat 1/1 step 3/3" in progress.data["text/plain"]
    assert "images/s" in progress.data["text/plain"]
    assert measured(request["outputs_dir"]).result.status == "complete"
    # Running the planning cell again must not trip over what the notebook itself defined.
    client = NotebookClient(notebook)
    with client.setup_kernel():
        for cell in (cells["parameters"], cells["plan"], cells["measure"], cells["plan"]):
            client.execute_cell(cell, notebook.cells.index(cell))


def notebook_of(model):
    return ROOT / "notebooks" / f"{model}.ipynb"


@each_model
def test_the_parameters_cell_has_every_parameter_with_its_default(model):
    sources = cell_sources(notebook_of(model))
    (source,) = (s for s in sources if s.startswith("# the work"))
    values: dict = {}
    exec(source, values)
    values.pop("__builtins__")
    assert values == {name: default for name, (default, _meaning) in parameters().items()}


@each_model
def test_the_notebook_is_thin_and_has_no_outputs(model):
    notebook = nbformat.read(notebook_of(model), 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code)
    assert not any(word in cell.source for cell in code for word in ("def ", "class ", "for "))
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
    assert "32 tokens each" in Path(done.stdout.strip()).read_text()


def test_perfkit_run_does_the_same_and_keeps_the_executed_notebook(cli, small, fake_trainer):
    request = small(input="synthetic")
    done = cli("run", "resnet50", *as_options(request))
    assert done.returncode == 0, done.stderr
    measurement = measured(request["outputs_dir"])
    assert done.stdout.strip() == str(measurement.folder / "report.html")
    assert (measurement.folder / "logs" / "papermill.ipynb").exists()
    assert measurement.result.config.label == ""


def test_perfkit_run_ends_with_1_when_a_run_fails_and_says_why(cli, small):
    done = cli("run", "resnet50", *as_options(small(input="synthetic", timeout=1)))
    assert done.returncode == 1
    assert "time_out" in done.stderr
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
    monkeypatch.setattr("perfkit.nodes.launch.launcher_command", launcher_command(0.1))
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

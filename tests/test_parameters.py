"""Parameters files cover the published tables, and invalid files are rejected."""

import re
from collections import Counter

import pytest

import perfkit
from perfkit.analysis.published.matches import STRATEGIES
from perfkit.measuring.parameters import parameter_values
from perfkit.measuring.paths import ROOT
from perfkit.sweep.jobs import read_jobs
from perfkit.sweep.matrix import read_sweep
from perfkit.sweep.sweep_file import SweepError

FOLDER = ROOT / "parameters"
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
TABLES = {
    "fleetx-resnet50": ["fleetx-resnet50"],
    "fleetx-vgg16": ["fleetx-vgg16"],
    "dlperf-resnet50": ["dlperf-resnet50", "dlperf-resnet50-log", "dlperf-resnet50-run"],
    "perf-resnet50": ["perf-resnet50"],
    "perf-bert": ["perf-bert"],
    "paddle-resnet50-report": ["paddle-resnet50-report"],
}
TABLE_NAMES = {"resnet50": "resnet50", "vgg16": "vgg16", "bert": "bert-base"}
PLACE = ("precision", "nodes", "gpus", "batch_size")


def expand(path):
    """Return the parameters of each configuration of a file, with its model."""
    configurations, problems = read_sweep(path)
    if problems:
        raise SweepError([f"{path}:{line}: {message}" for line, message in problems])
    return [{"model": each.model} | each.parameters for each in configurations]


def named(file):
    """Return a file's cells: model, precision, nodes, GPUs per node, batch per GPU."""
    named_cells = []
    for configuration in expand(FOLDER / f"{file}.yaml"):
        place = [configuration[name] for name in PLACE]
        named_cells.append((TABLE_NAMES[configuration["model"]], *place))
    return named_cells


def cells(file, status):
    """Return Paddle's cells of this status in the file's tables, in the form of `named`."""
    frame = perfkit.published()
    of_tables = frame[frame["table"].isin(TABLES[file])]
    rows = of_tables.query("framework == 'paddle' and status == @status")
    columns = ["model", "precision", "nodes", "gpus_per_node", "batch_per_gpu"]
    return set(rows[columns].itertuples(index=False, name=None))


def test_every_published_paddle_table_has_a_parameters_file():
    """Except for a single number of the references, which are compared by class of GPU."""
    published = "framework == 'paddle' and status == 'published' and table != 'references'"
    paddle = perfkit.published().query(published)
    assert set(paddle["table"]) == {table for tables in TABLES.values() for table in tables}
    assert {*TABLES, "quick", "gpt2", "fleet", "llama3-8b"} == set(FILES)


def test_the_llama_sweep_has_the_bf16_cells_of_torchtitan():
    configurations = set()
    for configuration in expand(FOLDER / "llama3-8b.yaml"):
        assert (configuration["model"], configuration["model_size"]) == ("llama", "8b")
        names = ("execution", "nodes", "gpus", "batch_size", "sequence_length")
        configurations.add(tuple(configuration[name] for name in names))
    frame = perfkit.published()
    of_table = frame[frame["table"] == "torchtitan-llama3-8b"]
    in_bf16 = of_table[of_table["precision"] == "bf16"]
    columns = ["execution", "nodes", "gpus_per_node", "batch_per_gpu", "sequence_length"]
    assert configurations == set(in_bf16[columns].itertuples(index=False, name=None))
    assert len(configurations) == 4


@pytest.mark.parametrize("file", TABLES)
def test_every_published_paddle_cell_is_measured_exactly_once(file):
    """Only cells marked with a dash may be measured besides."""
    measured = Counter(named(file))
    published = cells(file, "published")
    assert published
    assert {cell: measured[cell] for cell in published} == dict.fromkeys(published, 1)
    assert measured.keys() - published <= cells(file, "not_published")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("file", FILES)
def test_every_configuration_is_valid_on_its_target_hardware(file, monkeypatch, tmp_path):
    """The hardware is a Slurm allocation of 16 nodes with 8 GPUs and GPU builds."""
    constants = {"cuda_version": "12.6", "cuda": "12.6"}
    monkeypatch.setattr("perfkit.measuring.system.software.constants", lambda *_: constants)
    labels = list("01234567")
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: labels)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "16")
    monkeypatch.setenv("SLURMD_NODENAME", "node1")
    for request in expand(FOLDER / f"{file}.yaml"):
        model = request.pop("model")
        plan = perfkit.plan(model, request | {"data_dir": str(tmp_path)}, ("data",))
        values = parameter_values(plan.config, plan.protocol)
        assert {name: values[name] for name in request} == request


@pytest.mark.parametrize("file", TABLES)
def test_published_tables_use_static_graphs_without_perfkits_tuning(file):
    """They also use the full protocol and leave the launcher open."""
    names = ("framework", "execution", "protocol", "disable_tuning", "layout", "launcher")
    layout = None if file == "perf-bert" else "NCHW"
    for configuration in expand(FOLDER / f"{file}.yaml"):
        values = [configuration.get(name) for name in names]
        assert values == ["paddle", "static", "published", "all", layout, None]


def test_matching_expects_the_strategies_of_the_parameters_files():
    strategies = {}
    for file in FILES:
        for configuration in expand(FOLDER / f"{file}.yaml"):
            strategy = configuration.get("strategy", "none")
            if strategy != "none":
                strategies[file, configuration["precision"]] = strategy
    assert strategies == STRATEGIES


@pytest.fixture
def sweep_file(tmp_path):
    def write(text, notebook="notebook: resnet50\n"):
        path = tmp_path / "sweep.yaml"
        path.write_text(notebook + text, "utf-8")
        return path

    return write


GRID = "matrix: {nodes: [1, 2], gpus: [1, 8]}\n"


@pytest.mark.parametrize(
    ("text", "configurations"),
    [
        ("parameters: {seed: 1}\nmatrix: {gpus: [4, 8]}", ["seed 1 gpus 4", "seed 1 gpus 8"]),
        (GRID, ["nodes 1 gpus 1", "nodes 1 gpus 8", "nodes 2 gpus 1", "nodes 2 gpus 8"]),
        # Without a matrix, each entry is a configuration.
        ("include: [{gpus: 1}, {gpus: 8, nodes: 2}]", ["gpus 1", "gpus 8 nodes 2"]),
        # A list matches any of its values; excludes may overlap and contain null.
        (
            f"{GRID}exclude: [{{nodes: [2, 4], gpus: 1}}, {{nodes: 2}}]",
            ["nodes 1 gpus 1", "nodes 1 gpus 8"],
        ),
        # Matching configurations get the other parameters; an entry without a match is added.
        (
            "matrix: {gpus: [1, 8]}\ninclude: [{gpus: 8, seed: 1}, {timeout: 9}]",
            ["gpus 1 timeout 9", "gpus 8 seed 1 timeout 9"],
        ),
        (
            "matrix: {gpus: [1, 8]}\nexclude: [{gpus: 8}]\ninclude: [{gpus: 8, seed: 1}]",
            ["gpus 1", "gpus 8 seed 1"],
        ),
    ],
)
def test_matrix_exclude_and_include_expand_to_the_expected_configurations(
    sweep_file, text, configurations
):
    expanded = []
    for configuration in expand(sweep_file(text)):
        assert configuration.pop("model") == "resnet50"
        expanded.append(" ".join(f"{name} {value}" for name, value in configuration.items()))
    assert expanded == configurations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paramters: {gpus: 8}", "paramters: no such name; did you mean 'parameters'?"),
        ("parameters: {gpu: 8}", "parameters.gpu: no such name; did you mean 'gpus'?"),
        ("matrix: {gpus: 8}", "matrix.gpus: must be a list: [A, B]"),
        ("matrix: {gpus: [[1, 2]]}", "matrix.gpus.0: must be text, a number, true, false"),
        ("matrix: {gpus: [8]}\nexclude: [{gpus: 1}]", "exclude: {'gpus': 1} matches nothing"),
        (
            "matrix: {gpus: [8], seed: [1]}\ninclude: [{gpus: 1}]",
            "matches nothing in the matrix; a configuration of its own also sets seed",
        ),
        ("matrix: {gpus: [8]}\ninclude: [{gpus: 8}]", "{'gpus': 8} adds nothing to the matrix"),
        ("include: [{gpus: 8}, {gpus: 8}]", "the same configuration twice"),
        ("matrix: {gpus: [8]}\nexclude: [{gpus: 8}]", "no configuration is left"),
        ("parameters: {gpus: 8}\nmatrix: {gpus: [1]}", "gpus is given here and in line"),
        ("matrix: {gpus: [1", "sweep.yaml:2: not YAML: expected ',' or ']'"),
    ],
)
def test_an_invalid_file_is_rejected_with_name_and_reason(sweep_file, text, message):
    with pytest.raises(SweepError) as refused:
        read_jobs(sweep_file(text), {}, elsewhere=True)
    assert re.search(r"sweep\.yaml(:\d+)?: ", str(refused.value))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("notebook", "message"),
    [
        ("notebook: resnet5", "model: 'resnet5' is not available; .* did you mean 'resnet50'?"),
        ("parameters: {}", "notebook: is missing"),
    ],
)
def test_a_file_without_a_valid_notebook_is_rejected(sweep_file, notebook, message):
    with pytest.raises(SweepError, match=rf"sweep\.yaml(:\d+)?: .*{message.replace('?', '.')}"):
        read_jobs(sweep_file("", notebook), {}, elsewhere=True)


def test_all_problems_of_a_file_are_reported_in_line_order(sweep_file):
    text = "parameters: {image_size: 3, gpus: 1}\nmatrix:\n batchsize: [1, 2]\n input: [foo]"
    with pytest.raises(SweepError) as refused:
        read_jobs(sweep_file(text), {}, elsewhere=True)
    found = []
    for problem in refused.value.problems:
        _path, line, name, _rest = problem.split(":", 3)
        found.append(f"{line}:{name}")
    assert found == [
        "2: image_size",
        "4: matrix.batchsize",
        "5: input",
    ]


@pytest.mark.parametrize(
    ("table", "prefetch"),
    [("fleetx-resnet50", 8), ("fleetx-vgg16", 8), ("paddle-resnet50-report", 2)],
)
def test_published_tables_keep_the_dali_settings_of_their_source(table, prefetch):
    for job in read_jobs(ROOT / "parameters" / f"{table}.yaml", {}, elsewhere=True):
        config = job.plan.config
        assert (config.work.dali_threads, config.work.dali_prefetch) == (4, prefetch)
        assert config.work.dali_decoder == "image_random_crop"


def test_an_unusable_outputs_folder_is_rejected_in_a_dry_run(sweep_file):
    """Also on Slurm, whose folders cannot be checked."""
    where = 'device: cpu, input: synthetic, outputs_dir: "s3://bucket"'
    with pytest.raises(SweepError, match=r":2: outputs_dir: .*not a file or folder"):
        read_jobs(sweep_file(f"parameters: {{{where}}}"), {}, elsewhere=True)

"""The parameter files name what was published, and a wrong file is refused."""

import re

import pytest

import perfkit
from perfkit.config import ROOT
from perfkit.reference.matches import STRATEGIES
from perfkit.sweep.file import SweepError, read_sweep

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
TWO_BY_EIGHT = {"nodes": 2, "gpus": 8}
PLACE = ("precision", "nodes", "gpus", "batch_size")


def expand(path):
    """The configurations of a parameters file, each model and parameters."""
    configurations, wrong = read_sweep(path)
    if wrong:
        raise SweepError(wrong)
    return [{"model": c.model} | c.parameters for c in configurations]


def named(file):
    """The cells that a file names: model, precision, nodes, GPUs per node, batch per GPU."""
    configurations = expand(FOLDER / f"{file}.yaml")
    return [(TABLE_NAMES[c["model"]], *(c[name] for name in PLACE)) for c in configurations]


def cells(file, status):
    """Paddle's cells of this status in the file's tables, as `named` has them."""
    frame = perfkit.published()
    some = frame[frame["table"].isin(TABLES[file])].query("framework == 'paddle'")
    columns = ["model", "precision", "nodes", "gpus_per_node", "batch_per_gpu"]
    return set(some.query("status == @status")[columns].itertuples(index=False, name=None))


def test_every_published_table_with_paddle_in_it_has_a_file():
    paddle = perfkit.published().query("framework == 'paddle' and status == 'published'")
    assert set(paddle["table"]) == {table for tables in TABLES.values() for table in tables}
    assert {*TABLES, "quick"} == set(FILES)


@pytest.mark.parametrize("file", TABLES)
def test_every_cell_that_paddle_published_is_named_exactly_once(file):
    found = named(file)
    counts = {cell: found.count(cell) for cell in cells(file, "published")}
    assert counts
    assert {cell: count for cell, count in counts.items() if count != 1} == {}


@pytest.mark.parametrize("file", TABLES)
def test_no_configuration_is_without_a_cell_or_marked_with_a_dash(file):
    allowed = cells(file, "published") | cells(file, "not_published")
    assert [cell for cell in named(file) if cell not in allowed] == []


@pytest.mark.parametrize("file", FILES)
def test_every_configuration_of_a_file_can_be_asked_for_on_the_hardware_it_needs(
    file, monkeypatch, tmp_path
):
    """On a Slurm allocation of 8 nodes with 8 GPUs each, with a GPU build of Paddle."""
    monkeypatch.setattr(
        "perfkit.frameworks.paddle.constants", lambda *_: {"cuda_version": "12.6"}
    )
    monkeypatch.setattr("perfkit.request.plan.visible_gpus", lambda: [str(n) for n in range(8)])
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "8")
    monkeypatch.setenv("SLURMD_NODENAME", "node1")
    for name in ("train_list.txt", "shard.hdf5"):
        (tmp_path / name).touch()
    for configuration in expand(FOLDER / f"{file}.yaml"):
        asked = {k: v for k, v in configuration.items() if k != "model"}
        planned = perfkit.plan(configuration["model"], asked | {"data_dir": str(tmp_path)})
        given = planned.config.model_dump() | {"protocol": planned.protocol.name}
        assert {name: given[name] for name in asked} == asked


@pytest.mark.parametrize("file", TABLES)
def test_published_tables_are_measured_with_paddles_static_graph_and_the_full_protocol(file):
    asked = {
        (c["framework"], c["execution"], c["protocol"], "launcher" in c)
        for c in expand(FOLDER / f"{file}.yaml")
    }
    assert asked == {("paddle", "static", "published", False)}


@pytest.mark.parametrize(
    ("file", "strategies"),
    [
        ("fleetx-resnet50", {"fp32": "fleetx-fp32", "amp": "fleetx-amp"}),
        ("fleetx-vgg16", {"fp32": "fleetx-vgg16-fp32", "amp": "fleetx-vgg16-amp"}),
    ],
)
def test_each_fleetx_precision_has_the_strategy_printed_above_its_table(file, strategies):
    pairs = {(c["precision"], c["strategy"]) for c in expand(FOLDER / f"{file}.yaml")}
    assert pairs == {*strategies.items(), ("auto", "fleetx-auto")}


def test_the_strategy_that_a_match_expects_is_the_one_of_the_tables_file():
    named = {
        (file, cell["precision"]): cell["strategy"]
        for file in FILES
        for cell in expand(FOLDER / f"{file}.yaml")
        if cell.get("strategy", "none") != "none"
    }
    assert named == STRATEGIES


def test_the_quick_sweep_runs_a_few_small_configurations_on_the_cpu():
    configurations = expand(FOLDER / "quick.yaml")
    assert len(configurations) <= 4
    assert {(c["device"], c["protocol"]) for c in configurations} == {("cpu", "quick")}
    assert max(c["batch_size"] for c in configurations) <= 4


@pytest.mark.parametrize("file", FILES)
def test_a_file_says_in_its_header_what_it_stands_for(file):
    assert (FOLDER / f"{file}.yaml").read_text("utf-8").startswith("# ")


@pytest.fixture
def expanded(tmp_path):
    def expanded(text, notebook="notebook: resnet50\n"):
        path = tmp_path / "sweep.yaml"
        path.write_text(notebook + text, "utf-8")
        return expand(path)

    return expanded


def test_a_matrix_is_every_combination_with_the_fixed_parameters_in_each(expanded):
    assert expanded("parameters: {seed: 1}\nmatrix: {nodes: [1, 2], gpus: [4, 8]}") == [
        {"model": "resnet50", "seed": 1, "nodes": nodes, "gpus": gpus}
        for nodes in (1, 2)
        for gpus in (4, 8)
    ]


def test_without_a_matrix_the_parameters_are_one_configuration(expanded):
    assert expanded("parameters: {gpus: 8}") == [{"model": "resnet50", "gpus": 8}]
    assert expanded("") == [{"model": "resnet50"}]


def test_without_a_matrix_each_included_combination_is_a_configuration(expanded):
    found = expanded("include: [{gpus: 1}, {gpus: 8, nodes: 2}]")
    assert found == [{"model": "resnet50", "gpus": 1}, {"model": "resnet50"} | TWO_BY_EIGHT]


def test_a_list_in_exclude_stands_for_any_of_its_values(expanded):
    found = expanded(
        "matrix: {nodes: [1, 2, 4], gpus: [1, 8]}\nexclude: [{nodes: [2, 4], gpus: 1}]"
    )
    assert [(c["nodes"], c["gpus"]) for c in found] == [(1, 1), (1, 8), (2, 8), (4, 8)]


def test_exclude_can_name_null(expanded):
    found = expanded("matrix: {layout: [null, NHWC]}\nexclude: [{layout: null}]")
    assert [c["layout"] for c in found] == ["NHWC"]


def test_excludes_may_overlap(expanded):
    found = expanded("matrix: {nodes: [1, 2], gpus: [1, 8]}\nexclude: [{nodes: 2}, {gpus: 1}]")
    assert [(c["nodes"], c["gpus"]) for c in found] == [(1, 8)]


def test_include_adds_parameters_to_the_combinations_that_it_matches(expanded):
    found = expanded("matrix: {gpus: [1, 8]}\ninclude: [{gpus: 8, seed: 1}, {timeout: 9}]")
    assert [(c["gpus"], c.get("seed"), c["timeout"]) for c in found] == [
        (1, None, 9),
        (8, 1, 9),
    ]


def test_include_can_name_one_more_combination(expanded):
    found = expanded(
        "matrix: {nodes: [1], gpus: [1, 8]}\ninclude: [{nodes: 2, gpus: 8, seed: 1}]"
    )
    assert found[-1] == {"model": "resnet50", "seed": 1} | TWO_BY_EIGHT
    assert len(found) == 3


def test_an_excluded_combination_can_be_included_with_more_parameters(expanded):
    found = expanded(
        "matrix: {gpus: [1, 8]}\nexclude: [{gpus: 8}]\ninclude: [{gpus: 8, seed: 1}]"
    )
    assert [c.get("seed") for c in found] == [None, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paramters: {gpus: 8}", "paramters: no such name; did you mean 'parameters'?"),
        ("parameters: {gpu: 8}", "parameters.gpu: no such name; did you mean 'gpus'?"),
        ("matrix: {gpu: [8]}", "matrix.gpu: no such name; did you mean 'gpus'?"),
        ("include: [{gpu: 8}]", "include.0.gpu: no such name; did you mean 'gpus'?"),
        ("matrix: {gpus: [8]}\nexclude: [{gpu: 8}]", "exclude.0.gpu: no such name"),
        ("parameters: {xyz: 8}", "parameters.xyz: no such name"),
        ("matrix: {gpus: 8}", "matrix.gpus: must be a list: [A, B]"),
        ("matrix: {gpus: []}", "matrix.gpus: is empty"),
        ("matrix: [1]", "matrix: must hold names with values"),
        ("matrix: {gpus: [[1, 2]]}", "matrix.gpus.0: must be text, a number, true, false"),
        ("parameters: {gpus: {a: 1}}", "parameters.gpus: must be text, a number, true, false"),
        ("include: [{gpus: [1, 8]}]", "include.0.gpus: must be text, a number, true, false"),
        ("matrix: {gpus: [8]}\nexclude: [{gpus: 1}]", "exclude: {'gpus': 1} matches nothing"),
        ("matrix: {gpus: [8]}\nexclude: [{nodes: 1}]", "matches nothing in the matrix"),
        ("matrix: {gpus: [8]}\nexclude: [{layout: null}]", "matches nothing in the matrix"),
        (
            "matrix: {gpus: [8], nodes: [1]}\ninclude: [{gpus: 1, seed: 1}]",
            "include: {'gpus': 1, 'seed': 1} matches nothing in the matrix",
        ),
        ("matrix: {gpus: [8]}\ninclude: [{gpus: 8}]", "{'gpus': 8} adds nothing to the matrix"),
        ("matrix: {gpus: [8, 8]}", "the same configuration twice"),
        ("include: [{gpus: 8}, {gpus: 8}]", "the same configuration twice"),
        ("matrix: {gpus: [8]}\nexclude: [{gpus: 8}]", "no configuration is left"),
        (
            "parameters: {gpus: 8}\nmatrix: {gpus: [1]}",
            "gpus is given here and at parameters.gpus: keep one",
        ),
        (
            "parameters: {seed: 8}\nmatrix: {gpus: [1]}\ninclude: [{seed: 1}]",
            "seed is given here and at parameters.seed",
        ),
        ("matrix: {gpus: [1]}\ninclude: [{seed: 1}, {seed: 2}]", "seed is given here and at"),
        ("include: [{}, {}]", "the same configuration twice"),
        ("matrix: {gpus: [1], gpus: [2]}", "sweep.yaml:2: gpus is given twice"),
        ("parameters: &a {gpus: 8}\nmatrix: *a", "sweep.yaml:3: the alias *a: write it out"),
        ("? [gpus]\n: 8", "a key must be a name"),
        ("matrix: " + "[" * 2000, "nested too deep"),
        ("#" * 300_000, "over 256 KiB"),
        (f"matrix: {{seed: {list(range(10_001))}}}", "over 10,000 configurations"),
        ("matrix: {gpus: [1", "not YAML: expected ',' or ']'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_what_is_wrong(expanded, text, message):
    with pytest.raises(SweepError) as refused:
        expanded(text)
    assert re.search(r"sweep\.yaml(:\d+)?: ", str(refused.value))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("notebook", "message"),
    [
        ("", "must hold names with values, `notebook`"),
        ("notebook: resnet5", "notebook: no such name; did you mean 'resnet50'?"),
        ("parameters: {}", "notebook: is missing"),
        ("- 1", "must hold names with values, `notebook`"),
        ("notebook: 2020-13-45", "month must be in 1..12"),
    ],
)
def test_a_file_that_names_no_notebook_is_refused(expanded, notebook, message):
    with pytest.raises(SweepError, match=rf"sweep\.yaml(:\d+)?: .*{message.replace('?', '.')}"):
        expanded("", notebook)


def test_several_problems_of_a_file_are_told_at_once(expanded):
    with pytest.raises(
        SweepError, match=r"(?s):2: parameters\.gpu: .*:3: batch_size: 0 .*:4: matrix\.seeds: "
    ):
        expanded("parameters: {gpu: 8,\n batch_size: 0}\nmatrix: {seeds: [1]}")


def test_a_file_that_is_not_there_or_not_text_is_refused_by_name(tmp_path):
    with pytest.raises(SweepError, match=r"missing\.yaml: No such file"):
        expand(tmp_path / "missing.yaml")
    with pytest.raises(SweepError, match="no file of this machine; fetch it first"):
        expand("https://example.com/sweep.yaml")
    with pytest.raises(SweepError, match="/dev/zero: not a file"):
        expand("/dev/zero")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SweepError, match=r"bytes\.yaml: 'utf-8' codec"):
        expand(tmp_path / "bytes.yaml")

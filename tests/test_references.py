"""Measurements beside published numbers of their GPU, and beside the user's own references."""

import json

import click
import pytest
from conftest import cli
from made.results import measured, write_all

from perfkit.measuring.results.store import Measurement
from perfkit.report.measurement import page

SPREAD = (0.99, 0.995, 0.998, 1.0, 1.002, 1.005, 1.01)
ON_H200 = {"device": "gpu", "facts": {"gpus": ["NVIDIA H200, 141 GiB"] * 8}}
MIXED = ON_H200 | {"gpus": 8, "precision": "amp", "framework": "torch", "layout": "NHWC"}
MIXED |= {"batch_size": 256}


def around(per_device, devices=1):
    return [per_device * devices * factor for factor in SPREAD]


@pytest.fixture
def stored(tmp_path):
    """Stores results; returns their outputs folder."""

    def store(*results):
        return write_all(tmp_path / "outputs", *results)

    return store


def compare(*arguments):
    """Return the status of perfkit compare and its text on one line."""
    done = cli("compare", *map(str, arguments))
    return done.exit_code, " ".join(click.unstyle(done.stdout + done.stderr).split())


# Published numbers.


def test_a_measurement_is_beside_every_number_of_its_gpu_the_most_alike_first(stored, tmp_path):
    outputs = stored(measured(around(6117, 8), **MIXED))
    file = tmp_path / "found.json"
    status, text = compare("references", outputs, "--json", file)
    assert status == 0
    assert "6,117 images/s per device on NVIDIA H200." in text
    found = json.loads(file.read_text())
    rows = []
    for each in found["references"]:
        rows.append((each["published"]["printed"], {*each["conditions"]}))
    assert rows == [
        ("7944.5", {"framework", "batch_size"}),
        ("3079", {"topology", "input", "layout"}),
        ("2260", {"topology", "input", "precision"}),
    ]
    nearest = found["references"][0]
    assert nearest["ratio"] == pytest.approx(6117 / 7944.5)
    assert nearest["interval"] == pytest.approx([6117 / 7944.5 * end for end in (0.99, 1.01)])
    assert nearest["conditions"]["batch_size"] == ["400", "256"]
    assert text.index("0.770 (0.762 – 0.778) 7,944") < text.index("1.99 (1.97 – 2.01) 3,079")
    assert "fused batch norm and ReLU" in nearest["published"]["note"]


def test_tf32_is_beside_the_number_in_tf32_first(stored, tmp_path):
    tf32 = {"gpus": 1, "tf32": True, "tf32_used": True}
    outputs = stored(measured(around(1160), **ON_H200 | tf32))
    file = tmp_path / "found.json"
    compare("references", outputs, "--json", file)
    nearest, *_others = json.loads(file.read_text())["references"]
    assert nearest["published"]["printed"] == "2260"
    assert "precision" not in nearest["conditions"]


@pytest.mark.parametrize(
    "other",
    [
        {"facts": {"gpus": ["NVIDIA H200 NVL, 141 GiB"] * 8}},
        {"facts": {"gpus": ["NVIDIA H200 MIG 1g.18gb, 16 GiB"] * 8}},
        {"model": "gpt", "image_size": None, "layout": None, "optimizer": "adamw"}
        | {"input": "synthetic", "precision": "bf16"},
    ],
)
def test_another_device_or_model_has_no_reference(stored, other):
    outputs = stored(measured(around(100), **ON_H200 | {"gpus": 1} | other))
    status, text = compare("references", outputs)
    assert status == 2
    assert "no published number of " in text and " on NVIDIA H200" in text


def test_a_tolerance_needs_a_file_of_references(stored):
    status, text = compare("references", stored(measured(around(4))), "--tolerance", 3)
    assert (status, "only with a file of references as A" in text) == (2, True)


def of_page(result, tmp_path):
    """Return the text of the page of a result."""
    write_all(tmp_path, result)
    (folder,) = tmp_path.iterdir()
    return repr(page(Measurement.read(folder)))


def test_the_page_has_the_ratio_to_the_most_alike_number(tmp_path):
    line = "0.77 of MLPerf Training v4.0, NVIDIA on H200 (MXNet, AMP, real data)"
    assert line in of_page(measured(around(6117, 8), **MIXED), tmp_path).splitlines()


def test_the_page_of_a_measurement_on_a_cpu_has_no_reference(tmp_path):
    assert "MLPerf" not in of_page(measured(around(4)), tmp_path)


# The user's own references.

ENTRY = "- match: {model: resnet50, precision: amp, gpu: H200}\n  value: 6500\n"


@pytest.fixture
def judged(stored, tmp_path):
    """Compares a measurement around 6117 images/s per device with references."""
    outputs = stored(measured(around(6117, 8), **MIXED))
    file = tmp_path / "references.yaml"

    def compared(content, *options):
        file.write_text(content)
        return compare(file, outputs, *options)

    return compared


@pytest.mark.parametrize(
    ("content", "options", "status"),
    [
        (ENTRY, [], 0),
        (ENTRY, ["--tolerance", "4 %"], 1),
        (ENTRY, ["--tolerance", "4"], 1),
        (ENTRY + "  tolerance: 4 %\n", ["--tolerance", "5%"], 1),
        (ENTRY + "  tolerance: 5 %\n", ["--tolerance", "4%"], 0),
    ],
)
def test_a_measurement_is_low_if_its_whole_interval_is_beyond_the_tolerance(
    judged, content, options, status
):
    """The interval ends at 6178.17: 6500 - 5 % is 6175, 6500 - 4 % is 6240."""
    found, text = judged(content, *options)
    assert found == status
    assert ("0 ok, 1 low, 0 no" if status else "1 ok, 0 low, 0 no") in text


@pytest.mark.parametrize("match", ["batch_size: 128", "gpu: H100"])
def test_a_measurement_that_no_entry_matches_has_no_reference(judged, match):
    status, text = judged(f"- {{match: {{{match}}}, value: 99999}}\n")
    assert (status, "0 ok, 0 low, 1 no reference" in text) == (0, True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            ENTRY + "- {match: {modl: resnet50}, value: 3}\n",
            "entry 2: match: no such name: modl",
        ),
        (
            "- {match: {model: bert}, value: 3, tolerance: 0.05}\n",
            "entry 1: tolerance: 0.05 is",
        ),
        ("- {match: {model: bert}, value: 3, sorce: me}\n", "entry 1: sorce: "),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_allowed(judged, content, problem):
    status, text = judged(content)
    assert status == 2
    assert f"references.yaml: {problem}" in text
    assert "an entry has match (names and values), value (of one device), toler" in text


def test_saved_references_match_what_they_were_written_from_and_nothing_else(stored, tmp_path):
    gpu = measured(around(6117, 8), **MIXED)
    larger = measured(around(6000, 8), **MIXED | {"batch_size": 320})
    failed = measured([], batch_size=8)
    outputs = stored(gpu, larger, measured(around(4)), failed)
    file = tmp_path / "references.yaml"
    status, text = compare(outputs, "--save-references", file)
    assert status == 0 and "left out: " in text and "it has no number" in text
    status, text = compare(file, outputs)
    assert status == 0 and "3 ok, 0 low, 0 no reference" in text
    status, text = compare(outputs, "--save-references", file)
    assert status == 2 and "File exists" in text


def test_saved_references_hold_on_another_node_of_the_same_gpu(stored, tmp_path):
    outputs = stored(measured(around(6117, 8), **MIXED))
    file = tmp_path / "references.yaml"
    compare(outputs, "--save-references", file)
    facts = ON_H200["facts"] | {"memory": "2.0", "kernel": "6.8", "cpu_cores": "64"}
    slow = write_all(tmp_path / "other", measured(around(5500, 8), **MIXED | {"facts": facts}))
    status, text = compare(file, slow)
    assert status == 1 and "5,445 – 5,555; reference: 6,117" in text

"""The table of the GPUs' peaks, and how names find their rows."""

import csv

import pytest

from perfkit.analysis.datasheets import FILE, datasheet_named, datasheet_of

PRECISIONS = ("tf32", "fp16", "bf16", "fp8")


def rows():
    with FILE.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["gpu"])
def test_a_peak_with_sparsity_is_twice_the_dense_one(row):
    assert row["source"]
    assert row["url"].startswith("https://")
    for precision in PRECISIONS:
        sparse = row[f"{precision}_sparse"]
        if sparse:
            # Datasheets round; that of the L40S prints 362 and 733.
            assert float(sparse) == pytest.approx(2 * float(row[precision]), rel=0.013)


def test_a_space_after_rtx_makes_no_difference():
    assert datasheet_named("rtx5090") == datasheet_named("RTX 5090")
    assert datasheet_named("rtx5090").gpu == "RTX 5090"


@pytest.mark.parametrize(
    ("name", "dense"),
    [
        ("NVIDIA GH200 480GB", 989.5),
        ("NVIDIA B200", 2250),
        ("NVIDIA B300 SXM6 AC", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA GB300", 2500),
        ("NVIDIA H20", 148),
        ("NVIDIA H800", 989.5),
        ("NVIDIA H800 PCIe", 756.5),
        ("NVIDIA A800-SXM4-80GB", 312),
        ("NVIDIA L20", 119.5),
        ("NVIDIA L40", 181),
        ("NVIDIA A40", 149.7),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8),
    ],
)
def test_nvmls_name_gives_the_dense_peak(name, dense):
    assert datasheet_of(name, "bf16").flops_per_second == pytest.approx(dense * 1e12)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA A40-48Q",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA H20-3e",
        "NVIDIA RTX 6000 Ada Generation",
    ],
)
def test_a_part_or_a_variant_of_a_gpu_has_no_datasheet(name):
    assert datasheet_of(name, "bf16") is None
    assert datasheet_named(name) is None


@pytest.mark.parametrize("name", ["MI300X", "MI325X", "MI355X"])
def test_gpus_that_nvml_cannot_report_are_for_audits_only(name):
    assert datasheet_of(f"AMD Instinct {name}", "bf16") is None
    assert datasheet_named(f"AMD Instinct {name}").gpu == name


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("H100", "H100 80GB HBM3"),
        ("8xH100", "H100 80GB HBM3"),
        ("H100-SXM5-80GB", "H100 80GB HBM3"),
        ("h100 pcie", "H100 PCIe"),
        ("H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("A100-SXM-80GB", "A100 SXM4 80GB"),
        ("GB200 NVL72", "GB200"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("8xMI300X", "MI300X"),
        ("4090", "RTX 4090"),
        ("RTX PRO 6000", "RTX PRO 6000 Blackwell Workstation Edition"),
    ],
)
def test_a_name_as_people_write_it_finds_its_row(name, gpu):
    assert datasheet_named(name).gpu == gpu


def test_a_gpu_without_bf16_is_compared_by_its_fp16_peak():
    sheet = datasheet_named("V100")
    assert (sheet.precision, sheet.flops_per_second) == ("fp16", 125e12)


def test_a_precision_that_a_gpu_lacks_has_no_peak():
    assert datasheet_named("A100", "fp8") is None
    assert datasheet_named("H100", "fp8").flops_per_second == 1979e12


@pytest.mark.parametrize("name", ["", "GPU", "TPU v5p", "H1000"])
def test_an_unknown_name_has_no_datasheet(name):
    assert datasheet_named(name) is None

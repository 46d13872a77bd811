"""Kubernetes manifests: schema-valid objects and a valid `perfkit run` command."""

import kubernetes_validate
import pytest
import yaml
from conftest import cli

from perfkit.config import ROOT
from perfkit.driver.manifest import NAME_LENGTH
from perfkit.request.plan import plan

PLACES = ["--image", "registry.example/perfkit:1", "--claim", "shared-files"]
TWO = ["-p", "nodes", "2", "-p", "gpus", "8", "-p", "data_dir", "/shared/data"]
BERT = ["-p", "precision=pure_fp16", "-p", "label=A_b", "-p", "port=31000"]
VGG = ["-p", "nodes=64", "-p", "device=cpu", "-p", "input=synthetic"]
VERSIONS = ("1.27", "1.31")


def manifest(*words):
    return cli("manifest", *words, *PLACES)


def objects(*words):
    done = manifest(*words)
    assert done.exit_code == 0, done.stderr
    return {item["kind"]: item for item in yaml.safe_load_all(done.stdout)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "words", [["resnet50", *TWO], ["bert", *TWO, *BERT], ["vgg16", *VGG]], ids=lambda w: w[0]
)
def test_every_object_is_valid_against_the_kubernetes_schema(words, version):
    found = objects(*words)
    assert list(found) == ["Secret", "Service", "Job"]
    for item in found.values():
        kubernetes_validate.validate(item, version, strict=True)


def test_pods_run_the_same_command_and_find_each_other_by_name():
    found = objects("resnet50", *TWO[:-1], "/shared/image net")
    service, job = found["Service"], found["Job"]
    name, spec = job["metadata"]["name"], job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (
        2,
        2,
        "Indexed",
    )
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"] == name
    assert service["spec"]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (container,) = pod["containers"]
    command = container["command"]
    assert command[:3] == ["perfkit", "run", "resnet50"]
    given = dict(zip(command[4::3], command[5::3], strict=True))
    assert given == {
        "nodes": "2",
        "gpus": "8",
        "data_dir": "/shared/image net",
        "outputs_dir": "/shared/outputs",
        "launcher": "manual",
        "hosts": f"{name}-0.{name},{name}-1.{name}",
    }
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert pod["initContainers"][0]["env"][0]["value"] == given["hosts"].replace(",", " ")


def test_option_values_cannot_inject_fields():
    text = "\"}\nkind: Pod\n---\n{{ name }} \u2028 <&'>"
    done = cli("manifest", "resnet50", *TWO, "--image", text, "--claim", text)
    secret, service, job = yaml.safe_load_all(done.stdout)
    assert [secret["kind"], service["kind"], job["kind"]] == ["Secret", "Service", "Job"]
    pod = job["spec"]["template"]["spec"]
    containers = [*pod["containers"], *pod["initContainers"]]
    assert [container["image"] for container in containers] == [text, text]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == text


def test_each_manifest_has_a_unique_name_and_a_secret_outside_the_command_line():
    first, second = (objects("resnet50", *TWO) for _ in range(2))
    assert first["Job"]["metadata"]["name"] != second["Job"]["metadata"]["name"]
    secrets = [found["Secret"]["stringData"]["secret"] for found in (first, second)]
    assert len(set(secrets)) == 2
    assert secrets[0] not in str(first["Job"]) + str(first["Service"])


def test_long_labels_give_valid_host_names():
    found = objects("resnet50", *TWO, "-p", "label", "Very_long-" + "x" * 30)
    name = found["Job"]["metadata"]["name"]
    assert len(name) <= NAME_LENGTH + 7
    assert name.replace("-", "").isalnum() and name == name.lower()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["resnet50"], "nodes: set to 2 or more"),
        (["resnet50", *TWO, "-p", "hosts", "a,b"], "hosts: set by the Job"),
        (["resnet50", "-p", "nodes", "2"], "gpus: set the number per node"),
        (["resnet50", *TWO[:-3]], "data_dir: set the folder of the data, below /shared"),
        (["resnet50", *TWO, "-p", "outputs_dir", "/o"], "outputs_dir: '/o' is not below"),
        (["resnet50", *TWO, "--mount", "shared"], "--mount: 'shared' must begin with"),
        (["resnet50", *TWO, "-p", "batchsize", "2"], "did you mean 'batch_size'?"),
    ],
)
def test_an_invalid_manifest_request_is_rejected(words, expected):
    done = manifest(*words)
    assert done.exit_code == 2
    assert expected in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("folder", [ROOT, "/home/ann"])
def test_paths_below_the_checkout_and_the_home_folder_are_absolute(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    mount, data, python = (f"{folder}{path}" for path in ("", "/images", "/own/bin/python"))
    words = ["-p", "python", python, "--mount", mount]
    job = objects("resnet50", *TWO[:-1], data, *words)["Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {data, python, f"{mount}/outputs"} <= {*container["command"]}


def test_a_manifest_creates_no_local_folder(tmp_path):
    mount = str(tmp_path / "shared")
    places = ["-p", f"data_dir={mount}/data", "-p", f"outputs_dir={mount}/results"]
    done = manifest("resnet50", *TWO[:-3], *places, "--mount", mount)
    assert done.exit_code == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    given = {"gpus": 64, "outputs_dir": "/none/such/folder", "data_dir": "/none"}
    planned = plan("resnet50", given, skip_checks=("machine", "data"))
    assert (planned.config.topology, planned.protocol.name) == ("1x64", "published")

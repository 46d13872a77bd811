"""benchmarks/examples.py, which measures the examples anew: it goes on after an interruption,
refuses what would mix measurements, and publishes no more than it should. Its commands take
hours: `--trial` tries them."""

import example_pages
import pytest
from stages import Group, Record, Stage, StageError, run_stages

import examples
from perfkit.core.models import MODELS

pytestmark = pytest.mark.usefixtures("processes")


def write(folder, *names, text="{}"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_an_interrupted_group_goes_on_with_the_stage_that_has_not_finished(tmp_path):
    done = []

    def fail_at_first():
        done.append("second")
        if done.count("second") == 1:
            raise StageError("the disk is full")

    first = Stage("first", 1, lambda: done.append("first"))
    groups = [Group("group", [first, Stage("second", 2, fail_at_first)])]
    file = tmp_path / "record.json"
    with pytest.raises(StageError, match="disk is full"):
        run_stages(groups, Record("c0ffee"), file)
    record = Record.read(file)
    assert record.minutes_left(groups) == 2
    run_stages(groups, record, file)
    assert done == ["first", "second", "second"]
    assert Record.read(file).minutes_left(groups) == 0


def test_every_model_is_measured_and_all_groups_take_less_than_two_hours():
    groups = [make(examples.Place("outputs", is_trial=False)) for make in examples.GROUPS]
    names = [group.name for group in groups]
    assert len({*names}) == len(names)
    assert {*MODELS} <= {*names}
    assert names[-1] == "pages"
    assert sum(group.minutes for group in groups) < 120


def test_a_trial_measures_few_small_steps_into_a_folder_of_its_own():
    wanted = {"image_size": 224, "repeats": 7, "warmup_limit": None, "batch_size": 8}
    trial = examples.Place("outputs/trial", is_trial=True).options(**wanted)
    assert dict(zip(trial[1::3], trial[2::3], strict=True)) == {
        "image_size": "32",
        "repeats": "2",
        "warmup_limit": "40",
        "batch_size": "8",
        "outputs_dir": "outputs/trial",
    }
    whole = examples.Place("outputs", is_trial=False).options(**wanted)
    assert "outputs_dir" not in whole
    assert "warmup_limit" not in whole
    assert "224" in whole


@pytest.mark.parametrize(
    ("changes", "record", "reason"),
    [
        (" M perfkit/core/config.py", None, "perfkit/core/config.py"),
        ("", Record("0ther"), "0ther.*c0ffee"),
        ("", None, "resnet50-today"),
    ],
)
def test_measurements_of_two_commits_or_of_other_commands_are_never_mixed(
    changes, record, reason, tmp_path, monkeypatch
):
    answers = {"rev-parse": "c0ffee", "status": changes}
    monkeypatch.setattr(examples, "git", lambda *words: answers[words[0]])
    monkeypatch.setattr(examples, "ROOT", tmp_path)
    write(tmp_path, "outputs/examples/index.html", "outputs/resnet50-today/result.json")
    place = examples.Place("outputs", is_trial=False)
    if record:
        record.write(place.folder / examples.RECORD)
    with pytest.raises(SystemExit, match=reason):
        examples.begin(place, place.folder / examples.RECORD)


def test_the_examples_are_replaced_by_results_and_raw_steps_alone(tmp_path):
    outputs, target = tmp_path / "outputs", tmp_path / "outputs" / "examples"
    carried = example_pages.CARRIED[0]
    new = ["a/result.json", "a/repeats/1/rank0.jsonl", "comparisons/c/comparison.json"]
    write(outputs, *new, "a/notebook.ipynb", "a/logs/worker.log", "trial/a/result.json")
    write(target, "old/result.json", carried, text="old")
    example_pages.copy(outputs, target)
    assert files(target) == {*new, carried}
    assert (target / carried).read_text() == "old"


def test_a_file_that_names_the_host_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setattr(example_pages, "ROOT", tmp_path)
    monkeypatch.setattr(example_pages.socket, "gethostname", lambda: "kestrel7")
    write(tmp_path, "a/result.json", text='{"models": "kestrel70"}')
    example_pages.check_names(tmp_path)
    write(tmp_path, "b/result.json", text='{"host": "kestrel7"}')
    with pytest.raises(StageError, match=r"b/result\.json has 'kestrel7'"):
        example_pages.check_names(tmp_path)

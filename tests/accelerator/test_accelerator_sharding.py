"""Paddle shards on the fake accelerator, as it refuses to on a CPU."""

import pytest
from accelerator.fake import trained

pytestmark = pytest.mark.slow

LAUNCH = ("-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "log")
LLAMA = {"model": "llama", "device": "fake", "gpus": 2, "batch_size": 1}
LLAMA |= {"model_size": "tiny", "sequence_length": 32, "input": "synthetic", "warmup": 8}
OPTIONS = {
    "whole": {"sharding": "none"},
    "sharded": {"sharding": "full"},
    "recomputed": {"sharding": "full", "recompute": "full"},
}


@pytest.fixture(scope="module")
def answers(plugin, tmp_path_factory):
    """Return the answers of both ranks by the name of their options, rank 0 first; all
    parameters with over 1000 values are sharded."""
    folder = tmp_path_factory.mktemp("sharding")
    configurations = []
    for options in OPTIONS.values():
        configurations.append(LLAMA | options | {"shard_over": 1000})
    by_rank = {0: [], 1: []}
    for answer in trained(plugin, "fake", folder, configurations, LAUNCH):
        assert "error" not in answer, answer["error"]
        by_rank[answer["rank"]].append(answer)
    return dict(zip(OPTIONS, zip(*by_rank.values(), strict=True), strict=True))


@pytest.mark.parametrize("options", ["sharded", "recomputed"])
def test_sharded_devices_train_like_those_that_have_everything(answers, options):
    """With clipping and weight decay, which Paddle asks about shares by other names."""
    for whole, sharded in zip(answers["whole"], answers[options], strict=True):
        assert len(sharded["losses"]) == 10
        assert sharded["losses"] == pytest.approx(whole["losses"], rel=1e-5)


def test_sharded_devices_have_half_of_the_weights(answers):
    for whole, sharded in zip(answers["whole"], answers["sharded"], strict=True):
        # Shares are padded, and norms are whole.
        assert sharded["values_held"] == pytest.approx(whole["values_held"] / 2, rel=0.02)

"""mmengine's Runner with a dense network and 64 images, which logs every N steps:
mmengine_runner.py N."""

import sys

import torch
from ends import StepEnds
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

torch.set_num_threads(1)


class Dense(BaseModel):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 10),
        )

    def forward(self, images, labels, mode):
        assert mode == "loss"
        return {"loss": torch.nn.functional.cross_entropy(self.layers(images), labels)}


class Ends(Hook):
    def __init__(self):
        self.ends = StepEnds()

    def after_train_iter(self, *_state, **_others):
        self.ends.step()


images, labels = torch.rand(64_000, 256), torch.randint(10, (64_000,))
data = torch.utils.data.TensorDataset(images, labels)
Runner(
    model=Dense(),
    work_dir="trained",
    train_dataloader=torch.utils.data.DataLoader(data, batch_size=64),
    optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
    train_cfg={"by_epoch": True, "max_epochs": 100},
    default_hooks={
        "logger": {"type": "LoggerHook", "interval": int(sys.argv[1])},
        "checkpoint": None,
    },
    custom_hooks=[Ends()],
).train()

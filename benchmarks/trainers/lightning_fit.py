"""Lightning's Trainer with a dense network and 64 images, whose bar is refreshed every N steps:
lightning_fit.py N."""

import sys

import lightning
import torch
from ends import StepEnds
from lightning.pytorch.callbacks import Callback, TQDMProgressBar

torch.set_num_threads(1)


class Dense(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 10),
        )

    def training_step(self, batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Ends(Callback):
    def __init__(self):
        self.ends = StepEnds()

    def on_train_batch_end(self, *_state, **_others):
        self.ends.step()


images, labels = torch.rand(64_000, 256), torch.randint(10, (64_000,))
data = torch.utils.data.TensorDataset(images, labels)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=100,
    logger=False,
    enable_checkpointing=False,
    callbacks=[Ends(), TQDMProgressBar(refresh_rate=int(sys.argv[1]))],
)
trainer.fit(Dense(), torch.utils.data.DataLoader(data, batch_size=64))

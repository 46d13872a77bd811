"""Keras' fit with a dense network and 64 images, whose bar shows every step."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
from ends import StepEnds


class Ends(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.ends = StepEnds()

    def on_train_batch_end(self, batch, logs=None):
        self.ends.step()


images = np.random.rand(64_000, 256).astype("float32")
labels = np.random.randint(0, 10, len(images))
layers = [keras.layers.Dense(1024, activation="relu") for _ in range(2)]
model = keras.Sequential([*layers, keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images, labels, batch_size=64, epochs=100, verbose=1, callbacks=[Ends()])

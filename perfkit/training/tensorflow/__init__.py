"""ResNet-50 and BERT and their training in TensorFlow, on a CPU: `python -m
perfkit.training.tensorflow.train --help`.

train.py       the training script
verify.py      traces a few steps, to compare frameworks
models.py      which model an option names, and its loss
resnet.py      ResNet-50
bert.py        BERT-base
layers.py      the layers of both
optimizers.py  momentum SGD and AdamW
batches.py     batches as tensors
precision.py   effective precision and device
"""

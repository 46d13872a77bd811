"""ResNet-50 and its training in MXNet's Gluon, on a CPU, in an interpreter of its own
(docs/backends.md): `python -m perfkit.training.mxnet.train --help`.

train.py      the training script
verify.py     traces a few steps, to compare frameworks
resnet.py     ResNet-50
batches.py    batches as arrays
precision.py  effective precision and device
"""

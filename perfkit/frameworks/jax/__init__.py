"""JAX.

backend.py     device, training step, precision and profile
optimizers.py  momentum SGD and AdamW
program.py     facts read from a compiled program
layers.py      layers and their parameters
resnet50.py    ResNet-50
vgg16.py       VGG-16
bert.py        BERT
"""

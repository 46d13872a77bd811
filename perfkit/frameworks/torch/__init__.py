"""PyTorch.

backend.py   device, training step, precision and profile
resnet50.py  ResNet-50
vgg16.py     VGG-16
bert.py      BERT
"""

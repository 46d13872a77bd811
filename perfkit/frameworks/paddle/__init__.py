"""Paddle.

backend.py   device, training step, precision and profile
strategy.py  what becomes of each option of a distributed strategy
presets.py   distributed strategies of published suites
resnet50.py  ResNet-50
vgg16.py     VGG-16
bert.py      BERT
"""

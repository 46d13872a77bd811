"""The models and their training in Paddle: `python -m perfkit.training.paddle.train --help`.

train.py      the training script
verify.py     traces a few steps, to compare frameworks
models.py     which model an option names, and its loss
resnet.py     ResNet-50
vgg.py        VGG-16
bert.py       BERT-base
gpt.py        GPT-2
llama.py      Llama 3
attention.py  attention of the language models
batches.py    batches on the device
precision.py  effective precision and device
presets.py    distributed strategies of published suites
strategy.py   applies them, and records the outcome of each option
sharding.py   divides Llama among the ranks
"""

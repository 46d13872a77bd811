"""The models and their training in JAX: `python -m perfkit.training.jax.train --help`.

train.py      the training script
verify.py     traces a few steps, to compare frameworks
models.py     which model an option names, and its loss
programs.py   the compiled programs of a training
resnet.py     ResNet-50
bert.py       BERT-base
gpt.py        GPT-2
llama.py      Llama 3
layers.py     layers that several models have
optimizer.py  momentum SGD and AdamW
batches.py    batches on the device
precision.py  effective precision and device
launch.py     starts several ranks
parallel.py   training by several processes
sharding.py   divides Llama among the ranks
"""

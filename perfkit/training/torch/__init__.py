"""The models and their training in PyTorch: `python -m perfkit.training.torch.train --help`."""

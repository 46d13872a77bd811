"""The models and their training in Paddle: `python -m perfkit.training.paddle.train --help`."""

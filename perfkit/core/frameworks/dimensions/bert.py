"""BERT-base pre-training on masked words and next sentences (Devlin et al., BERT: pre-training
of deep bidirectional transformers, 2018): 12 layers of width 768 with 12 heads, post-norm,
GELU. The logits of masked words share the embedding's weights.
"""

VOCABULARY = 30_522
"""Size of BERT's English lower-case vocabulary."""
PADDING = 0
"""Id of padding, which is never a masked word."""

POSITIONS = 512
WIDTH = 768
HEADS = 12
LAYERS = 12
INNER = 3072
"""Hidden width of a layer's dense block."""
DROPOUT = 0.1
EPSILON = 1e-12
"""Epsilon of the layer norms."""
DEVIATION = 0.02
"""Standard deviation of the normal initial weights. Not truncated: Paddle 2 truncates at two
standard deviations, Paddle 3 and PyTorch at -2 and 2."""
MASKED = -1e4
"""Added to the attention scores of padding; representable in float16."""

"""Where batches come from. Each module's `batches(...)` yields (images, labels) for ever."""

CLASSES = 1000
MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
"""Of ImageNet's pixels (R, G, B, 0 to 255): what published ResNet-50 recipes normalize by."""

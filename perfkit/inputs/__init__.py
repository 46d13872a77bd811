"""Where batches come from. Each input's `batches(config, rank)` yields them for ever.

`dali`, `dataloader` and `synthetic` are the inputs. A batch of images is (images, labels):
float32 of batch x layout, int64 of batch x 1. A batch of sequences is (input_ids, segment_ids,
input_mask, masked_lm_positions, masked_lm_ids, next_sentence_labels): int64 of three times
batch x tokens, twice batch x predictions, batch x 1; unused predictions are 0.
A batch is one micro-batch: `config.batch_size` samples.
"""

MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
"""Of ImageNet's pixels (R, G, B, 0 to 255): what published ResNet-50 recipes normalize by."""

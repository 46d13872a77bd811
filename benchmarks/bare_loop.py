"""A bare Paddle training loop without perfkit: Paddle's ResNet-50 with DALI.

python bare_loop.py DATA_DIR IMAGE_SIZE BATCH WARMUP_STEPS MEASURED_STEPS prints images/s.
"""

import sys
import time

import paddle
from nvidia.dali import fn, pipeline_def, types
from paddle.utils.dlpack import from_dlpack

data, size, batch, warmup, measured = sys.argv[1], *map(int, sys.argv[2:])


@pipeline_def(batch_size=batch, num_threads=4, device_id=None, prefetch_queue_depth=2, seed=0)
def pipeline():
    files, labels = fn.readers.file(
        file_root=data, file_list=f"{data}/train_list.txt", random_shuffle=True
    )
    images = fn.decoders.image_random_crop(files, output_type=types.RGB, num_attempts=100)
    images = fn.resize(images, resize_x=size, resize_y=size)
    mean, std = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]
    mirror = fn.random.coin_flip()
    images = fn.crop_mirror_normalize(images, mean=mean, std=std, mirror=mirror)
    return images, fn.cast(labels, dtype=types.INT64)


paddle.set_device("cpu")
network = paddle.vision.models.resnet50(num_classes=1000)
loss_of = paddle.nn.CrossEntropyLoss()
optimizer = paddle.optimizer.Momentum(
    0.1 * batch / 256, 0.9, parameters=network.parameters(), weight_decay=1e-4
)
batches = pipeline()
batches.build()
for step in range(warmup + measured):
    if step == warmup:
        began = time.perf_counter()
    images, labels = (from_dlpack(output.as_tensor()) for output in batches.run())
    loss = loss_of(network(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    float(loss)
print(batch * measured / (time.perf_counter() - began))

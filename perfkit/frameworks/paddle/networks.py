"""The networks in Paddle; perfkit.models names their sources.

BERT's attention consists of separate operators, as in the published runs: Paddle 2's fused
attention has no CPU kernel. GPT-2 uses Paddle's scaled_dot_product_attention on a GPU or XPU,
and separate operators on a CPU, where Paddle 3 has no fused kernel and Paddle 2 no kernel at
all, and on plugin devices.
"""

import paddle
from paddle import Tensor, nn
from paddle.nn import functional
from paddle.nn.initializer import Initializer, KaimingNormal, Normal

from perfkit.models import bert, gpt, resnet50, vgg16
from perfkit.models.model import CLASSES

BERT_WEIGHTS = Normal(std=bert.DEVIATION)
GPT_WEIGHTS, GPT_RESIDUAL = Normal(std=gpt.DEVIATION), Normal(std=gpt.RESIDUAL_DEVIATION)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, layout: str, *, bias: bool = False
) -> nn.Conv2D:
    return nn.Conv2D(
        inputs,
        outputs,
        kernel,
        stride,
        padding=kernel // 2,
        bias_attr=None if bias else False,
        weight_attr=KaimingNormal(),
        data_format=layout,
    )


def _dense(inputs: int, outputs: int, weights: Initializer) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=weights)


def _embedding(rows: int, width: int, weights: Initializer) -> nn.Embedding:
    return nn.Embedding(rows, width, weight_attr=weights)


class Bottleneck(nn.Layer):
    """1x1, strided 3x3 and 1x1 convolutions, and a projected or identity shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        outputs = width * resnet50.EXPANSION
        self.conv1 = _convolution(inputs, width, 1, 1, layout)
        self.bn1 = nn.BatchNorm2D(width, data_format=layout)
        self.conv2 = _convolution(width, width, 3, stride, layout)
        self.bn2 = nn.BatchNorm2D(width, data_format=layout)
        self.conv3 = _convolution(width, outputs, 1, 1, layout)
        self.bn3 = nn.BatchNorm2D(outputs, data_format=layout)
        self.downsample = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(
                _convolution(inputs, outputs, 1, stride, layout),
                nn.BatchNorm2D(outputs, data_format=layout),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet50(nn.Layer):
    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.conv1 = _convolution(3, resnet50.STEM, 7, 2, layout)
        self.bn1 = nn.BatchNorm2D(resnet50.STEM, data_format=layout)
        self.maxpool = nn.MaxPool2D(3, 2, padding=1, data_format=layout)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(*(Bottleneck(*sizes, layout) for sizes in stage))
            for stage in resnet50.stages()
        )
        self.avgpool = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.fc = nn.Linear(resnet50.features(), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)


class VGG16(nn.Layer):
    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Layer] = []
        channels = 3
        for width, count in vgg16.STAGES:
            for _ in range(count):
                layers += [_convolution(channels, width, 3, 1, layout, bias=True), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2D(2, 2, data_format=layout))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2D(vgg16.POOLED, data_format=layout)
        layers, weights = [], Normal(std=vgg16.DEVIATION)
        for sizes in vgg16.dense_layers():
            layers += [_dense(*sizes, weights), nn.ReLU(), nn.Dropout(vgg16.DROPOUT)]
        self.classifier = nn.Sequential(*layers[:-2])

    def forward(self, images: Tensor) -> Tensor:
        x = self.avgpool(self.features(images))
        if self.channels_last:
            # Dense weights expect channels first in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return self.classifier(x.flatten(1))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)


class BertLayer(nn.Layer):
    """Encoder layer (batch x length x width), post-norm: self-attention and a dense block."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out_proj = (
            _dense(bert.WIDTH, bert.WIDTH, BERT_WEIGHTS) for _ in range(4)
        )
        self.attention_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.fc1 = _dense(bert.WIDTH, bert.INNER, BERT_WEIGHTS)
        self.fc2 = _dense(bert.INNER, bert.WIDTH, BERT_WEIGHTS)
        self.output_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.dropout = nn.Dropout(bert.DROPOUT)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        width = bert.WIDTH // bert.HEADS
        query, key, value = (
            part(x).reshape([0, 0, bert.HEADS, width]).transpose([0, 2, 1, 3])
            for part in (self.query, self.key, self.value)
        )
        scores = paddle.matmul(query * width**-0.5, key, transpose_y=True) + mask
        attended = paddle.matmul(self.dropout(functional.softmax(scores)), value)
        attended = attended.transpose([0, 2, 1, 3]).reshape([0, 0, bert.WIDTH])
        x = self.attention_norm(x + self.dropout(self.out_proj(attended)))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.output_norm(x + self.dropout(y))


class Bert(nn.Layer):
    inputs = 4
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = _embedding(bert.VOCABULARY, bert.WIDTH, BERT_WEIGHTS)
        self.position_embeddings = _embedding(bert.POSITIONS, bert.WIDTH, BERT_WEIGHTS)
        self.token_type_embeddings = _embedding(2, bert.WIDTH, BERT_WEIGHTS)
        self.embedding_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.dropout = nn.Dropout(bert.DROPOUT)
        self.layers = nn.LayerList([BertLayer() for _ in range(bert.LAYERS)])
        self.pooler = _dense(bert.WIDTH, bert.WIDTH, BERT_WEIGHTS)
        self.seq_relationship = _dense(bert.WIDTH, 2, BERT_WEIGHTS)
        self.transform = _dense(bert.WIDTH, bert.WIDTH, BERT_WEIGHTS)
        self.transform_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.decoder_bias = self.create_parameter([bert.VOCABULARY], is_bias=True)

    def forward(
        self, ids: Tensor, segments: Tensor, mask: Tensor, masked_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape
        positions = self.position_embeddings(paddle.arange(length))
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        x = self.dropout(self.embedding_norm(x))
        added = (1 - mask.astype(x.dtype)).reshape([batch, 1, 1, length]) * bert.MASKED
        for layer in self.layers:
            x = layer(x, added)
        nsp_logits = self.seq_relationship(paddle.tanh(self.pooler(x[:, 0])))

        rows = masked_positions + paddle.arange(batch).unsqueeze(1) * length
        masked = paddle.gather(x.reshape([-1, bert.WIDTH]), rows.flatten())
        masked = self.transform_norm(functional.gelu(self.transform(masked)))
        mlm_logits = paddle.matmul(masked, self.word_embeddings.weight, transpose_y=True)
        return mlm_logits + self.decoder_bias, nsp_logits

    def loss(
        self, logits: tuple[Tensor, Tensor], masked_ids: Tensor, next_sentence: Tensor
    ) -> Tensor:
        mlm_logits, nsp_logits = logits
        return functional.cross_entropy(
            mlm_logits, masked_ids.flatten(), ignore_index=bert.PADDING
        ) + functional.cross_entropy(nsp_logits, next_sentence)


def _has_fused_attention() -> bool:
    return paddle.get_device().startswith(("gpu", "xpu"))


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Causal attention, batch x length x heads x width; without `mask`, the fused kernel."""
    if mask is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    query, key, value = (part.transpose([0, 2, 1, 3]) for part in (query, key, value))
    scores = paddle.matmul(query * query.shape[-1] ** -0.5, key, transpose_y=True) + mask
    return paddle.matmul(functional.softmax(scores), value).transpose([0, 2, 1, 3])


class GptLayer(nn.Layer):
    """Decoder layer (batch x length x width), pre-norm: causal attention and a dense block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)
        self.qkv = _dense(gpt.WIDTH, 3 * gpt.WIDTH, GPT_WEIGHTS)
        self.out_proj = _dense(gpt.WIDTH, gpt.WIDTH, GPT_RESIDUAL)
        self.dense_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)
        self.fc1 = _dense(gpt.WIDTH, gpt.INNER, GPT_WEIGHTS)
        self.fc2 = _dense(gpt.INNER, gpt.WIDTH, GPT_RESIDUAL)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            part.reshape([0, 0, gpt.HEADS, gpt.WIDTH // gpt.HEADS])
            for part in self.qkv(self.attention_norm(x)).split(3, -1)
        )
        attended = _attention(query, key, value, mask)
        x = x + self.out_proj(attended.reshape([0, 0, gpt.WIDTH]))
        y = functional.gelu(self.fc1(self.dense_norm(x)), approximate=True)
        return x + self.fc2(y)


class Gpt(nn.Layer):
    inputs = 1
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.token_embeddings = _embedding(gpt.VOCABULARY, gpt.WIDTH, GPT_WEIGHTS)
        self.position_embeddings = _embedding(gpt.POSITIONS, gpt.WIDTH, GPT_WEIGHTS)
        self.layers = nn.LayerList([GptLayer() for _ in range(gpt.LAYERS)])
        self.final_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.token_embeddings(ids) + self.position_embeddings(paddle.arange(length))
        mask = None
        if not _has_fused_attention():
            mask = paddle.triu(paddle.full([length, length], float("-inf"), x.dtype), 1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.final_norm(x).reshape([-1, gpt.WIDTH])
        return paddle.matmul(x, self.token_embeddings.weight, transpose_y=True)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels.flatten())

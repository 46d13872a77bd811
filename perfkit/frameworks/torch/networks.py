"""The networks in PyTorch; perfkit.models names their sources.

Weights are initialized as in Paddle, biases with 0. Attention is scaled_dot_product_attention,
which selects the device's fastest kernel and computes the same as Paddle's separate operators.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfkit.models import bert, gpt, resnet50, vgg16
from perfkit.models.model import CLASSES

Fill = Callable[[Tensor], object]
BERT_WEIGHTS = partial(nn.init.normal_, std=bert.DEVIATION)
GPT_WEIGHTS = partial(nn.init.normal_, std=gpt.DEVIATION)
GPT_RESIDUAL = partial(nn.init.normal_, std=gpt.RESIDUAL_DEVIATION)
VGG16_WEIGHTS = partial(nn.init.normal_, std=vgg16.DEVIATION)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, *, bias: bool = False
) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _dense(inputs: int, outputs: int, fill: Fill) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    fill(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _embedding(rows: int, width: int, fill: Fill) -> nn.Embedding:
    layer = nn.Embedding(rows, width)
    fill(layer.weight)
    return layer


class Bottleneck(nn.Module):
    """1x1, strided 3x3 and 1x1 convolutions, and a projected or identity shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * resnet50.EXPANSION
        self.conv1 = _convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(
                _convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.downsample(x) if self.downsample else x
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.relu(self.bn2(self.conv2(y)), inplace=True)
        return functional.relu(self.bn3(self.conv3(y)) + shortcut, inplace=True)


class ResNet50(nn.Module):
    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        self.conv1 = _convolution(3, resnet50.STEM, 7, 2)
        self.bn1 = nn.BatchNorm2d(resnet50.STEM)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(*(Bottleneck(*sizes) for sizes in stage))
            for stage in resnet50.stages()
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = _dense(resnet50.features(), CLASSES, nn.init.xavier_uniform_)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        if self.channels_last:
            # A view: PyTorch indexes NCHW for any order in memory.
            x = x.permute(0, 3, 1, 2)
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels.flatten())


class VGG16(nn.Module):
    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Module] = []
        channels = 3
        for width, count in vgg16.STAGES:
            for _ in range(count):
                layers += [_convolution(channels, width, 3, bias=True), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(vgg16.POOLED)
        layers = []
        for sizes in vgg16.dense_layers():
            layers += [_dense(*sizes, VGG16_WEIGHTS), nn.ReLU(inplace=True)]
            layers += [nn.Dropout(vgg16.DROPOUT)]
        self.classifier = nn.Sequential(*layers[:-2])
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        if self.channels_last:
            # A view: PyTorch indexes NCHW for any order in memory.
            images = images.permute(0, 3, 1, 2)
        return self.classifier(self.avgpool(self.features(images)).flatten(1))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels.flatten())


class BertLayer(nn.Module):
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
        query, key, value = (
            part(x).unflatten(-1, (bert.HEADS, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask.to(query.dtype),
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        attended = attended.transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.dropout(self.out_proj(attended)))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.output_norm(x + self.dropout(y))


class Bert(nn.Module):
    inputs = 4
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = _embedding(bert.VOCABULARY, bert.WIDTH, BERT_WEIGHTS)
        self.position_embeddings = _embedding(bert.POSITIONS, bert.WIDTH, BERT_WEIGHTS)
        self.token_type_embeddings = _embedding(2, bert.WIDTH, BERT_WEIGHTS)
        self.embedding_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.dropout = nn.Dropout(bert.DROPOUT)
        self.layers = nn.ModuleList([BertLayer() for _ in range(bert.LAYERS)])
        self.pooler = _dense(bert.WIDTH, bert.WIDTH, BERT_WEIGHTS)
        self.seq_relationship = _dense(bert.WIDTH, 2, BERT_WEIGHTS)
        self.transform = _dense(bert.WIDTH, bert.WIDTH, BERT_WEIGHTS)
        self.transform_norm = nn.LayerNorm(bert.WIDTH, bert.EPSILON)
        self.decoder_bias = nn.Parameter(torch.zeros(bert.VOCABULARY))

    def forward(
        self, ids: Tensor, segments: Tensor, mask: Tensor, masked_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape
        positions = self.position_embeddings(torch.arange(length, device=ids.device))
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        x = self.dropout(self.embedding_norm(x))
        added = (1 - mask.to(x.dtype)).reshape(batch, 1, 1, length) * bert.MASKED
        for layer in self.layers:
            x = layer(x, added)
        nsp_logits = self.seq_relationship(torch.tanh(self.pooler(x[:, 0])))

        rows = torch.arange(batch, device=ids.device).unsqueeze(1)
        masked = x[rows, masked_positions].flatten(0, 1)
        masked = self.transform_norm(functional.gelu(self.transform(masked)))
        mlm_logits = functional.linear(masked, self.word_embeddings.weight, self.decoder_bias)
        return mlm_logits, nsp_logits

    def loss(
        self, logits: tuple[Tensor, Tensor], masked_ids: Tensor, next_sentence: Tensor
    ) -> Tensor:
        mlm_logits, nsp_logits = logits
        return functional.cross_entropy(
            mlm_logits, masked_ids.flatten(), ignore_index=bert.PADDING
        ) + functional.cross_entropy(nsp_logits, next_sentence.flatten())


class GptLayer(nn.Module):
    """Decoder layer (batch x length x width), pre-norm: causal attention and a dense block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)
        self.qkv = _dense(gpt.WIDTH, 3 * gpt.WIDTH, GPT_WEIGHTS)
        self.out_proj = _dense(gpt.WIDTH, gpt.WIDTH, GPT_RESIDUAL)
        self.dense_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)
        self.fc1 = _dense(gpt.WIDTH, gpt.INNER, GPT_WEIGHTS)
        self.fc2 = _dense(gpt.INNER, gpt.WIDTH, GPT_RESIDUAL)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (gpt.HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).split(gpt.WIDTH, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_proj(attended.transpose(1, 2).flatten(2))
        y = functional.gelu(self.fc1(self.dense_norm(x)), approximate="tanh")
        return x + self.fc2(y)


class Gpt(nn.Module):
    inputs = 1
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.token_embeddings = _embedding(gpt.VOCABULARY, gpt.WIDTH, GPT_WEIGHTS)
        self.position_embeddings = _embedding(gpt.POSITIONS, gpt.WIDTH, GPT_WEIGHTS)
        self.layers = nn.ModuleList([GptLayer() for _ in range(gpt.LAYERS)])
        self.final_norm = nn.LayerNorm(gpt.WIDTH, gpt.EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.token_embeddings(ids) + self.position_embeddings(positions)
        for layer in self.layers:
            x = layer(x)
        x = self.final_norm(x).flatten(0, 1)
        return functional.linear(x, self.token_embeddings.weight)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels.flatten())

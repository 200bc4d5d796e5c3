"""Small models of every kind that the tests plan, with random weights and a sample each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

VOCABULARY = 64


class Case(NamedTuple):
    """A model and one micro-batch."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def tokens(rows: int = 2, length: int = 8) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length))


def gpt2(**options: Any) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=options.pop("layers", 2),
        n_head=2,
        n_embd=32,
        vocab_size=VOCABULARY,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
    return Case(GPT2LMHeadModel(config), (tokens(),), {})


def llama() -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=32,
        intermediate_size=64,
        vocab_size=VOCABULARY,
    )
    return Case(LlamaForCausalLM(config), (tokens(),), {"use_cache": False})


def t5(**options: Any) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        num_layers=2, num_heads=2, d_model=32, d_kv=16, d_ff=64, vocab_size=VOCABULARY, **options
    )
    given = {"input_ids": tokens(), "decoder_input_ids": tokens(length=6)}
    return Case(T5ForConditionalGeneration(config), (), given)


def bert() -> Case:
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_size=32,
        intermediate_size=64,
        vocab_size=VOCABULARY,
    )
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    return Case(BertForQuestionAnswering(config), (tokens(), mask), {})


def vit() -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_size=32,
        intermediate_size=64,
        image_size=32,
        patch_size=16,
    )
    return Case(ViTForImageClassification(config), (torch.randn(2, 3, 32, 32),), {})


def resnet() -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])
    return Case(ResNetForImageClassification(config), (torch.randn(2, 3, 32, 32),), {})


REAL = {"gpt2": gpt2, "llama": llama, "t5": t5, "bert": bert, "vit": vit, "resnet": resnet}


class Tagger(nn.Module):
    """Embedding, LSTM with dropout between its layers, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.rnn = nn.LSTM(8, 8, num_layers=2, batch_first=True, dropout=0.3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(x))[0])


class PackedEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, (hidden, _) = self.rnn(packed)
        return pad_packed_sequence(states, batch_first=True)[0], hidden


class PackedTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.encoder = PackedEncoder()
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        states, hidden = self.encoder(self.embed(x), lengths)
        return self.head(states) + hidden.mean()


class Branch(nn.Module):
    """Chooses its path by what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x) if x.sum() > 0 else self.down(x)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.branch = Branch()
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.branch(self.first(x).relu()))


@dataclass
class Batch:
    """Nobody registered this class with anything."""

    x: torch.Tensor
    scale: float
    extra: torch.Tensor | None = None


@dataclass
class Answer:
    value: torch.Tensor
    parts: tuple[torch.Tensor, torch.Tensor]
    note: str


def tagger() -> Case:
    return Case(Tagger(), (tokens(),), {})


def packed() -> Case:
    return Case(PackedTagger(), (tokens(2, 5), torch.tensor([5, 3])), {})


def branching() -> Case:
    return Case(Branching(), (torch.randn(3, 8),), {})


def mlp(width: int = 8, depth: int = 6) -> Case:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return Case(nn.Sequential(*layers), (torch.randn(4, width),), {})


OWN = {"lstm": tagger, "packed lstm": packed, "branch": branching}


def make(name: str, seed: int = 0) -> Case:
    """A case by name, the same every time."""
    torch.manual_seed(seed)
    return {**REAL, **OWN}[name]()

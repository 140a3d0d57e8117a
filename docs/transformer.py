"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) in one file. Python ≥ 3.10, PyTorch ≥ 2.3.

Copyright (c) 2026 The annotated authors, MIT licence. Made by `python -m tools.transformer_file`; explained in 09.

    model = Transformer(TransformerConfig(vocab_size=37_000))  # the paper's base model
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, (src, tgt) in enumerate(batches, start=1):  # ids: src … EOS, tgt BOS … EOS, both padded with PAD
        optimizer.param_groups[0]["lr"] = noam_rate(step, d_model=512, warmup=4000)
        loss = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    translations = beam_search(model, src)  # for each row of src a Hypothesis(ids, log_prob, score)

To load the course's weights, whose file holds the matrix that three layers share once, import json, pathlib and
safetensors.torch, and give the folder, "data/checkpoints/de-en":

    sizes = json.loads(pathlib.Path(folder, "config.json").read_text())["model"]
    weights = safetensors.torch.load_file(pathlib.Path(folder, "model.safetensors"))
    shared = dict.fromkeys(("tgt_embedding.weight", "output.weight"), weights["src_embedding.weight"])
    model = Transformer(TransformerConfig(**sizes)).eval()
    model.load_state_dict(weights | shared)
"""

import copy
import math
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

# A mask is boolean, True = may attend, and broadcast to (batch, heads, query, key); None hides nothing.
PAD, BOS, EOS, UNK = range(4)  # padding, beginning and end of a sentence, unknown word
POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "gelu", "silu")


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and switches of a Transformer: by default the paper's base model (Table 3); a departure is a switch."""

    vocab_size: int
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    layers: int = 6
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    positions: str = "sinusoidal"
    max_length: int = 512
    norm_first: bool = False
    tie_embeddings: bool = True
    activation: str = "relu"
    attention_bias: bool = False

    def __post_init__(self):
        for name in ("vocab_size", "d_model", "d_ff", "heads", "layers", "d_k", "d_v", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        for name, choices in (("positions", POSITIONS), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown: choose from {', '.join(choices)}.")


def padding_mask(ids, pad_id=0):
    """Let every query see the real tokens of its sentence and no padding."""
    # ids (batch, length) → (batch, 1, 1, length)
    return (ids != pad_id)[:, None, None, :]  # the same for every head and every query


def causal_mask(length, *, device=None):
    """Let position i see the positions 0 … i and none after it: a lower triangle of True (§3.2.3)."""
    # → (length, length)
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def combine(*masks):
    """Allow what every given mask allows: their logical AND, broadcast; None allows everything."""
    given = [mask for mask in masks if mask is not None]
    for mask in given:
        check_boolean(mask)
    return reduce(torch.logical_and, given) if given else None


def check_boolean(mask):
    """Refuse a mask of numbers: nobody can tell whether 0 means "hidden" or "nothing added to the score"."""
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean, True = may attend; got {mask.dtype}. "
            "Convert a mask of 1 and 0 with mask.bool(), one of 0 and -inf with mask == 0."
        )


def check_mask(mask, scores):
    """Refuse a mask that is not boolean, or that does not broadcast to scores of this shape."""
    check_boolean(mask)
    pairs = zip(mask.shape, scores[-mask.ndim :], strict=False)
    if mask.ndim not in (2, len(scores)) or any(given not in (1, wanted) for given, wanted in pairs):
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(scores)}: give (query, key) or "
            f"all {len(scores)} axes, each as long as the scores' or 1. Of three axes for four nobody can tell which "
            "is missing: of (batch, query, key) make mask[:, None], of (heads, query, key) mask[None]."
        )


def masked_softmax(scores, mask=None):
    """Turn scores into weights: a row of them sums to 1, and what is hidden gets 0."""
    # scores (…, query, key) → (…, query, key)
    if mask is None:
        return scores.softmax(dim=-1)
    check_mask(mask, scores.shape)
    # The lowest finite score instead of -inf: a fully masked row stays finite, and the second fill makes it zero.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention_weights(query, key, mask=None):
    """Tell how much of its attention each query gives to each key: softmax(Q Kᵀ / √d_k) (§3.2.1)."""
    # query (…, query, d_k), key (…, key, d_k) → (…, query, key)
    return masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), mask)


def attention(query, key, value, mask=None):
    """Mix the values by how well each query matches each key: softmax(Q Kᵀ / √d_k) V (§3.2.1, Eq. 1)."""
    # query (…, query, d_k), key (…, key, d_k), value (…, key, d_v) → (…, query, d_v)
    return attention_weights(query, key, mask) @ value


class MultiHeadAttention(nn.Module):
    """Attend in several subspaces at once (§3.2.2)."""

    def __init__(self, d_model, heads, *, d_k=None, d_v=None, bias=False):
        super().__init__()
        if min(d_model, heads, d_k or 1, d_v or 1) < 1 or 0 in (d_k, d_v):
            raise ValueError(f"d_model={d_model}, heads={heads}, d_k={d_k} and d_v={d_v} must be at least 1.")
        if (d_k is None or d_v is None) and d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide into {heads} heads: change one, or give d_k and d_v.")
        self.heads = heads
        self.d_k = d_k or d_model // heads
        self.d_v = d_v or d_model // heads
        self.W_q = nn.Linear(d_model, heads * self.d_k, bias=bias)
        self.W_k = nn.Linear(d_model, heads * self.d_k, bias=bias)
        self.W_v = nn.Linear(d_model, heads * self.d_v, bias=bias)
        self.W_o = nn.Linear(heads * self.d_v, d_model, bias=bias)

    def forward(self, query, key, value, mask=None):
        # query (batch, query, d_model), key (batch, key, d_model), value (batch, key, d_model)
        #   → (batch, query, d_model)
        return self.attend(query, *self.project(key, value), mask)

    def project(self, key, value):
        # key (batch, key, d_model), value (batch, key, d_model) → (batch, heads, key, d_k), (batch, heads, key, d_v)
        return self.split(self.W_k(key)), self.split(self.W_v(value))

    def attend(self, query, keys, values, mask=None):
        # query (batch, query, d_model), keys (batch, heads, key, d_k), values (batch, heads, key, d_v)
        #   → (batch, query, d_model)
        queries = self.split(self.W_q(query))
        mixed = attention(queries, keys, values, mask)  # (batch, heads, query, d_v)
        return self.W_o(mixed.transpose(1, 2).flatten(2))  # concatenated: (batch, query, heads · d_v)

    def split(self, x):  # x (batch, length, heads_width) → (batch, heads, length, width)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # between the two, (batch, length, heads, width)


def sinusoids(length, d_model):
    """Tabulate PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(same) (§3.5)."""
    # → (length, d_model)
    if d_model % 2:
        raise ValueError(
            f"d_model={d_model} is odd, but each sine needs its cosine: use {d_model - 1} or {d_model + 1}."
        )
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(torch.get_default_dtype())


class _Encoding(nn.Module):
    """Add one row of `table`, (max_length, d_model), to the embedding at each position."""

    def forward(self, x, start=0):  # x (batch, length, d_model) → (batch, length, d_model)
        end = start + x.size(1)
        if start < 0:
            raise ValueError(f"start={start} must be at least 0, the first position.")
        if end > len(self.table):
            raise ValueError(
                f"position {end - 1} is asked for, but there are encodings for {len(self.table)} positions: "
                "shorten the input or build the model with a larger max_length."
            )
        return x + self.table[start:end].to(x.dtype)


class SinusoidalEncoding(_Encoding):
    """Add fixed sines and cosines of the position to the embeddings (§3.5)."""

    def __init__(self, d_model, max_length):
        super().__init__()
        self.register_buffer("table", sinusoids(max_length, d_model), persistent=False)

    def _apply(self, fn, recurse=True):
        # `to_empty` drops the numbers, the meta device has none, and no checkpoint brings them back.
        self.table = numbers = sinusoids(*self.table.shape) if self.table.is_meta else self.table
        super()._apply(fn, recurse)
        self.table = numbers.to(self.table)
        return self


class LearnedEncoding(_Encoding):
    """Add a learned vector for each position to the embeddings (§3.5; Table 3, row E)."""

    def __init__(self, d_model, max_length):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)


class Dropout(nn.Module):
    """Zero each number with probability p in training and scale the rest by 1 / (1 − p) (Srivastava et al., 2014)."""

    def __init__(self, p):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p={p} must be at least 0 and below 1.")
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        kept = torch.rand_like(x, dtype=torch.float32) >= self.p
        return x * kept / (1 - self.p)


class LayerNorm(nn.Module):
    """Give a position mean 0 and variance 1, scale and shift it: γ (x − μ) / √(σ² + ε) + β (§3.1; Ba et al., 2016)."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):  # x (…, d_model) → (…, d_model)
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, correction=0)
        return self.gain * (x - mean) / (variance + self.eps).sqrt() + self.bias


class FeedForward(nn.Module):
    """The same two-layer network at every position: max(0, x W₁ + b₁) W₂ + b₂ (§3.3, Eq. 2)."""

    def __init__(self, d_model, d_ff, activation="relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: choose from {', '.join(ACTIVATIONS)}.")
        self.activation = getattr(F, activation)
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # x (…, d_model) → (…, d_model)
        return self.W_2(self.activation(self.W_1(x)))


class Residual(nn.Module):
    """Wrap a sub-layer: LayerNorm(x + Dropout(sublayer(x))) (§3.1, §5.4)."""

    def __init__(self, d_model, dropout, norm_first=False):
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, sublayer):  # x (batch, length, d_model) → (batch, length, d_model)
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection (§3.1)."""

    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.heads, d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias
        )
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.residuals = nn.ModuleList(Residual(config.d_model, config.dropout, config.norm_first) for _ in range(2))

    def forward(self, x, mask=None):  # x (batch, source, d_model) → (batch, source, d_model)
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of N encoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()

    def forward(self, x, mask=None):  # x (batch, source, d_model) → (batch, source, d_model)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class LayerCache:
    """What one decoder layer need not compute again: keys and values of the tokens so far, and of the memory."""

    tokens = ()
    memory = ()

    def append(self, keys, values):
        # keys (batch, heads, new, d_k), values (batch, heads, new, d_v) → each (batch, heads, length, _)
        if self.tokens:
            keys, values = torch.cat((self.tokens[0], keys), dim=2), torch.cat((self.tokens[1], values), dim=2)
        self.tokens = keys, values
        return self.tokens


class Cache(list[LayerCache]):
    """One `LayerCache` for each decoder layer."""

    def __init__(self, layers):
        super().__init__(LayerCache() for _ in range(layers))

    @property
    def length(self):
        return self[0].tokens[0].size(2) if self[0].tokens else 0

    def select(self, rows):  # rows (kept,)
        for layer in self:
            layer.tokens = tuple(x[rows] for x in layer.tokens)
            layer.memory = tuple(x[rows] for x in layer.memory)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward, each in a residual connection (§3.1)."""

    def __init__(self, config):
        super().__init__()
        self.self_attention, self.cross_attention = (
            MultiHeadAttention(config.d_model, config.heads, d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias)
            for _ in range(2)
        )
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.residuals = nn.ModuleList(Residual(config.d_model, config.dropout, config.norm_first) for _ in range(3))

    def forward(self, x, memory, tgt_mask=None, src_mask=None, cache=None):
        # x (batch, target, d_model), memory (batch, source, d_model) → (batch, target, d_model)
        def attend_to_target(x):
            if cache is None:
                return self.self_attention(x, x, x, tgt_mask)
            keys, values = cache.append(*self.self_attention.project(x, x))  # of the new positions, then of all so far
            return self.self_attention.attend(x, keys, values, tgt_mask)

        def attend_to_memory(x):
            if cache is None:
                return self.cross_attention(x, memory, memory, src_mask)
            if not cache.memory:  # it stays the same while the target grows
                cache.memory = self.cross_attention.project(memory, memory)
            keys, values = cache.memory
            return self.cross_attention.attend(x, keys, values, src_mask)

        x = self.residuals[0](x, attend_to_target)
        x = self.residuals[1](x, attend_to_memory)
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of N decoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()

    def forward(self, x, memory, tgt_mask=None, src_mask=None, cache=None):
        # x (batch, target, d_model), memory (batch, source, d_model) → (batch, target, d_model)
        caches = [None] * len(self.layers) if cache is None else cache
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory, tgt_mask, src_mask, layer_cache)
        return self.norm(x)


class Transformer(nn.Module):
    """The encoder-decoder Transformer (§3, Figure 1)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        encoding = LearnedEncoding if config.positions == "learned" else SinusoidalEncoding
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.positions = encoding(config.d_model, config.max_length)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self._initialise()

    def _initialise(self):
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.src_embedding, self.tgt_embedding, self.output):
            nn.init.normal_(embedding.weight, std=self.config.d_model**-0.5)
        if self.config.tie_embeddings:
            self.tgt_embedding.weight = self.output.weight = self.src_embedding.weight

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        # src (batch, source), tgt (batch, target) → (batch, target, vocab)
        if src_mask is None:
            src_mask = padding_mask(src)
        return self.logits(self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask))

    def encode(self, src, src_mask=None):  # src (batch, source) → (batch, source, d_model)
        if src_mask is None:
            src_mask = padding_mask(src)
        check_source_mask(src_mask)
        return self.encoder(self._embed(self.src_embedding, src), src_mask)

    def decode(self, tgt, memory, src_mask, tgt_mask=None, cache=None):
        # tgt (batch, target), memory (batch, source, d_model) → (batch, target, d_model)
        if src_mask is not None:
            check_source_mask(src_mask)
        start = 0 if cache is None else cache.length
        if tgt_mask is None:  # if you pass a mask, combine it with causal_mask yourself, or the future leaks
            # A row for each new token, a column for each token so far.
            tgt_mask = causal_mask(start + tgt.size(1), device=tgt.device)[start:]
            if cache is None:
                tgt_mask = combine(tgt_mask, padding_mask(tgt))  # (batch, 1, target, target)
        return self.decoder(self._embed(self.tgt_embedding, tgt, start), memory, tgt_mask, src_mask, cache)

    def logits(self, states):  # states (…, d_model) → (…, vocab)
        return self.output(states)

    def new_cache(self):
        return Cache(self.config.layers)

    def _embed(self, embedding, ids, start=0):  # ids (batch, length) → (batch, length, d_model)
        return self.dropout(self.positions(embedding(ids) * math.sqrt(self.config.d_model), start))


def check_source_mask(mask):
    """Refuse a mask (batch, source), which attention would take for (query, key) where their lengths agree."""
    if mask.ndim != 4:
        raise ValueError(
            f"a source mask of shape {tuple(mask.shape)} has {mask.ndim} axes, not 4: "
            "give (batch, 1, 1, source), as padding_mask does."
        )


def noam_rate(step, d_model, warmup):
    """Warm up linearly, then decay: d_model^−0.5 · min(step^−0.5, step · warmup^−1.5) (§5.3, Eq. 3)."""
    if min(step, d_model, warmup) < 1:
        raise ValueError(f"step={step}, d_model={d_model} and warmup={warmup} must be at least 1.")
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def label_smoothed_loss(logits, target, smoothing=0.1, pad_id=PAD, *, reduction="mean"):
    """Compare with a target that keeps 1 − ε and spreads ε evenly over all but padding (§5.4; Szegedy et al., 2016)."""
    # logits (…, vocab), target (…) → a number
    check_smoothing(smoothing)
    vocab = logits.size(-1)
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction={reduction!r} is unknown: choose "mean" or "sum".')
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"targets of shape {tuple(target.shape)} do not fit logits of shape {tuple(logits.shape)}: "
            "give one target for each row of logits."
        )
    if pad_id is not None and not 0 <= pad_id < vocab:
        raise ValueError(f"pad_id={pad_id} must lie in the vocabulary, 0 … {vocab - 1}, or be None.")

    log_p = logits.log_softmax(dim=-1)
    uniform = smoothing / (vocab if pad_id is None else vocab - 1)
    q = torch.full_like(log_p, uniform).scatter(-1, target[..., None], 1 - smoothing + uniform)
    asked = torch.ones_like(target, dtype=torch.bool)
    if pad_id is not None:
        q[..., pad_id] = 0.0
        asked = target != pad_id
    # Where q is 0 the cost is 0, even if log p is −∞; 0 · −∞ would be NaN.
    losses = -(q * log_p.masked_fill(q == 0, 0.0)).sum(dim=-1)
    total = losses.masked_fill(~asked, 0.0).sum()
    return total / asked.sum().clamp(min=1) if reduction == "mean" else total


def check_smoothing(smoothing):
    """Refuse an ε outside 0 ≤ ε < 1."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} must be at least 0 and below 1.")


BEAM = 4  # hypotheses kept for a sentence (§6.1)
ALPHA = 0.6  # exponent of the length penalty (§6.1)
MAX_EXTRA = 50  # tokens by which a translation may be longer than its source (§6.1)


class Hypothesis(NamedTuple):
    """A translation: ids without <bos> and <eos>, log-probability, and the score it was chosen by."""

    ids: list[int]
    log_prob: float
    score: float


def length_penalty(length, alpha):
    """Compute the divisor of log P, ((5 + |Y|) / 6)^α, so that longer ones may compete (§6.1; Wu et al., 2016)."""
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def greedy_decode(model, src, *, max_extra=MAX_EXTRA, use_cache=True):
    """Translate by taking the most probable token at each step."""
    # src (batch, source)
    model = in_eval_mode(model)
    src_mask = padding_mask(src)
    limits = longest_translations(model, src_mask, max_extra)
    memory = model.encode(src, src_mask)
    cache = model.new_cache() if use_cache else None
    ids = torch.full((len(src), 1), BOS, device=src.device)
    log_probs = torch.zeros(len(src), device=src.device)
    done = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    while not done.all():
        best, tokens = next_log_probs(model, ids, memory, src_mask, cache).max(dim=-1)
        log_probs = log_probs + best.masked_fill(done, 0.0)
        ids = torch.cat((ids, tokens.masked_fill(done, PAD)[:, None]), dim=1)
        done = done | (tokens == EOS) | (ids.size(1) > limits)
    rows = [[token for token in row if token not in (BOS, EOS, PAD)] for row in ids.tolist()]
    return [Hypothesis(row, log_prob, log_prob) for row, log_prob in zip(rows, log_probs.tolist(), strict=True)]


@torch.inference_mode()
def beam_search(model, src, beam=BEAM, alpha=ALPHA, *, max_extra=MAX_EXTRA, use_cache=True):
    """Translate by keeping the `beam` most probable beginnings at each step (§6.1; Wu et al., 2016)."""
    # src (batch, source)
    check_search(model, beam, alpha)
    model = in_eval_mode(model)
    return [search(model, row, beam, alpha, 1, max_extra, use_cache)[0] for row in src]


def search(model, src, beam, alpha, n, max_extra, use_cache):
    """Search for the `n` best translations of one sentence; arguments as for `beam_search`."""
    # src (source,)
    src_mask = padding_mask(src[None])
    memory = model.encode(src[None], src_mask)
    limit = int(longest_translations(model, src_mask, max_extra))
    cache = model.new_cache() if use_cache else None
    finished = []
    ids = torch.full((1, 1), BOS, device=src.device)  # one beginning; the first step makes it `beam`
    log_probs = torch.zeros(1, device=src.device)
    for length in range(1, limit + 1):
        # 1. Extend every beginning by every token.
        totals = log_probs[:, None] + next_log_probs(model, ids, memory.expand(len(ids), -1, -1), src_mask, cache)

        # 2. Find the most probable: twice the beam, for each beginning has one <eos>, and enough must go on.
        log_probs, choices = totals.flatten().topk(2 * beam)
        vocab = model.config.vocab_size
        parents, tokens = choices // vocab, choices % vocab
        ended = tokens == EOS

        # 3. What ended among the best is finished.
        for i in ended[:beam].nonzero().flatten().tolist():
            score = log_probs[i].item() / length_penalty(length, alpha)
            finished.append(Hypothesis(ids[parents[i], 1:].tolist(), log_probs[i].item(), score))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n]

        # 4. Go on with the best unfinished ones, as long as one of them could still win.
        kept = (~ended).nonzero().flatten()[:beam]
        ids, log_probs = torch.cat((ids[parents[kept]], tokens[kept, None]), dim=1), log_probs[kept]
        could_score = log_probs[0].item() / length_penalty(limit, alpha)
        if len(finished) == n and could_score <= finished[-1].score:
            break
        if cache is not None:
            cache.select(parents[kept])
    if not finished:  # none ended in time
        finished = [Hypothesis(ids[0, 1:].tolist(), log_probs[0].item(), could_score)]
    return finished


def next_log_probs(model, ids, memory, src_mask, cache):
    """Compute the log-probabilities of each row's next token; <pad> and <bos> are never next."""
    # ids (row, length), memory (row, source, width) → (row, vocab)
    new = ids if cache is None else ids[:, -1:]
    log_probs = model.logits(model.decode(new, memory, src_mask, cache=cache)[:, -1]).log_softmax(dim=-1)
    log_probs[:, [PAD, BOS]] = -torch.inf
    return log_probs


def longest_translations(model, src_mask, max_extra):
    """Tell how many tokens each translation may have; a ValueError if max_extra is negative."""
    # → (batch,)
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative: a translation needs room.")
    return (src_mask.sum(dim=-1).flatten() + max_extra).clamp(1, model.config.max_length)


def check_search(model, beam, alpha, n=1):
    """Refuse a beam or an α with which the search makes no sense; a ValueError says which."""
    most = model.config.vocab_size // 2
    if not 1 <= n <= beam <= most:
        raise ValueError(f"beam={beam} must lie in {max(n, 1)} … {most} (half the vocabulary).")
    if not 0 <= alpha <= 100:
        raise ValueError(f"alpha={alpha} must lie in 0 … 100: below, it would favour short translations.")


def in_eval_mode(model):
    """Give the model or, if a part of it is in training mode, a copy in eval mode that shares weights and hooks."""
    parts = list(model.modules())
    if not any(part.training for part in parts):
        return model
    # Weights, hooks, settings: deepcopy takes as it is what stands in its memo. What holds a part is copied with it.
    ids, memo = {id(part) for part in parts}, {}
    for value in (value for part in parts for value in vars(part).values()):
        several = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        held = [getattr(value, "__self__", value)] if several is None else several  # of a method, its part
        if ids.isdisjoint(map(id, held)):
            memo[id(value)] = value
    return copy.deepcopy(model, memo).eval()

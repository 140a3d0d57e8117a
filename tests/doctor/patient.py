"""A Transformer by someone who knows the paper and PyTorch, and not this course. `faults.py` plants faults in it."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from annotated_course.doctor import Recipe

PAD, BOS, EOS = 0, 1, 2
VOCABULARY, D_MODEL, HEADS, D_FF, LAYERS, DROPOUT, WARMUP = 17, 32, 4, 64, 2, 0.1, 100


class MultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.d_k = D_MODEL // HEADS
        self.w_q, self.w_k = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.w_v, self.w_o = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.dropout = nn.Dropout(DROPOUT)

    def split(self, x):
        return x.view(x.size(0), -1, HEADS, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask, cache=None):
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        if cache is not None:  # one token at a time: those before it have left their keys and values here
            if cache:
                k, v = torch.cat((cache["k"], k), dim=2), torch.cat((cache["v"], v), dim=2)
            cache.update(k=k, v=v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = self.dropout(scores.softmax(dim=-1))
        return self.w_o((weights @ v).transpose(1, 2).reshape(query.size(0), -1, D_MODEL))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_1, self.w_2, self.dropout = nn.Linear(D_MODEL, D_FF), nn.Linear(D_FF, D_MODEL), nn.Dropout(DROPOUT)

    def forward(self, x):
        return self.w_2(self.dropout(F.relu(self.w_1(x))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(D_MODEL), nn.Dropout(DROPOUT)

    def forward(self, x, sublayer):
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(), FeedForward()
        self.residuals = nn.ModuleList([Residual() for _ in range(2)])

    def forward(self, x, mask):
        x = self.residuals[0](x, lambda x: self.attention(x, x, x, mask))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.cross_attention = MultiHeadAttention(), MultiHeadAttention()
        self.feed_forward, self.residuals = FeedForward(), nn.ModuleList([Residual() for _ in range(3)])

    def forward(self, x, memory, src_mask, tgt_mask, cache=None):
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, tgt_mask, cache))
        x = self.residuals[1](x, lambda x: self.cross_attention(x, memory, memory, src_mask))
        return self.residuals[2](x, self.feed_forward)


class Positions(nn.Module):
    def __init__(self, longest=64):
        super().__init__()
        place = torch.arange(longest).unsqueeze(1)
        speed = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        table = torch.stack((torch.sin(place * speed), torch.cos(place * speed)), dim=-1)
        self.register_buffer("table", table.flatten(1))

    def forward(self, x, start=0):
        return x + self.table[start : start + x.size(1)]


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D_MODEL, padding_idx=PAD)
        self.positions, self.dropout = Positions(), nn.Dropout(DROPOUT)
        self.encoder = nn.ModuleList([EncoderLayer() for _ in range(LAYERS)])
        self.decoder = nn.ModuleList([DecoderLayer() for _ in range(LAYERS)])
        self.output = nn.Linear(D_MODEL, VOCABULARY, bias=False)
        self.output.weight = self.embedding.weight
        for matrix in (p for p in self.parameters() if p.dim() > 1):
            nn.init.xavier_uniform_(matrix)

    def embed(self, ids, start=0):
        return self.dropout(self.positions(self.embedding(ids) * math.sqrt(D_MODEL), start))

    def encode(self, src, src_mask):
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        return x

    def decode(self, tgt, memory, src_mask, tgt_mask, caches=(None,) * LAYERS, start=0):
        x = self.embed(tgt, start)
        for layer, cache in zip(self.decoder, caches, strict=True):
            x = layer(x, memory, src_mask, tgt_mask, cache)
        return self.output(x)

    def forward(self, src, tgt):
        src_mask, causal = padding_mask(src), torch.ones(tgt.size(1), tgt.size(1)).tril().bool()
        return self.decode(tgt, self.encode(src, src_mask), src_mask, padding_mask(tgt) & causal)


def padding_mask(ids):
    return (ids != PAD)[:, None, None, :]


def loss(model, src, tgt, reduction="mean"):
    logits, answers = model(src, tgt[:, :-1]), tgt[:, 1:]
    return F.cross_entropy(logits.mT, answers, ignore_index=PAD, label_smoothing=0.1, reduction=reduction)


def optimizer(model):
    decayed, others = ([p for p in model.parameters() if (p.dim() > 1) == many] for many in (True, False))
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)


def plan(step):
    return D_MODEL**-0.5 * min(step**-0.5, step * WARMUP**-1.5)


def update(model, optimizer, batch, step, scaler=torch.amp.GradScaler("cpu")):  # noqa: B008
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = plan(step)
    optimizer.zero_grad()
    count = (batch[1][:, 1:] != PAD).sum()
    for src, tgt in zip(*(ids.chunk(2) for ids in batch), strict=True):
        scaler.scale(loss(model, src, tgt, "sum") / count).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


@torch.no_grad()
def write(model, src, longest=8):
    model.eval()
    src_mask, caches = padding_mask(src), [{} for _ in model.decoder]
    memory, ids, done = model.encode(src, src_mask), torch.full((len(src), 1), BOS), torch.zeros(len(src)).bool()
    while ids.size(1) <= longest and not done.all():
        logits = model.decode(ids[:, -1:], memory, src_mask, torch.ones(1), caches, start=ids.size(1) - 1)
        new = logits[:, -1].argmax(dim=-1).masked_fill(done, PAD)
        ids, done = torch.cat((ids, new[:, None]), dim=1), done | (new == EOS)
    return ids


RECIPE = Recipe(build=Transformer, loss=loss, optimizer=optimizer, plan=plan, update=update, write=write)

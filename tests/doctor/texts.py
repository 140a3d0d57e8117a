"""Small models of one text, built as the best known are: their quirks in code of our own, and an adapter for each."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from annotated_course.doctor import Recipe

WIDTH, HEADS, IDS, LONGEST = 32, 2, 50, 64
ANGLES = torch.arange(LONGEST)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000) / WIDTH))
CLOCK = torch.stack((ANGLES.sin(), ANGLES.cos()), dim=-1).flatten(1)


def masked(q, k, v, mask, dtype=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores if mask is None else scores.masked_fill(mask == 0, -9e15)
    return F.softmax(scores, dim=-1, dtype=dtype).to(v.dtype) @ v


def folded(q, k, v, mask):  # the heads in the batch, and the future filled in place
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) * k.size(-1) ** -0.5
    scores[:, *torch.triu_indices(*scores.shape[1:], offset=1)] = -torch.inf
    return torch.bmm(F.softmax(scores, dim=2), v.flatten(0, 1)).view_as(q)


class Attention(nn.Module):
    def __init__(self, attend, matrices=1, bias=True, buffer=False, by_head=False):
        super().__init__()
        self.reads = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH // matrices, bias) for _ in range(matrices))
        self.back, self.attend, self.by_head = nn.Linear(WIDTH, WIDTH), attend, by_head
        self.register_buffer("seen", torch.ones(LONGEST, LONGEST).tril() if buffer else None)

    def forward(self, x, mask=None):
        made = torch.cat([read(x) for read in self.reads], dim=-1)
        parts = [made] if self.by_head else made.split(WIDTH, dim=-1)
        parts = [part.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in parts]
        q, k, v = parts[0].chunk(3, dim=-1) if self.by_head else parts
        mask = mask if self.seen is None else self.seen[: x.size(1), : x.size(1)]
        x = self.attend(q, k, v, mask) if self.attend else F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.back(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, attention, *middle, pre=False, dropout=0.1):
        super().__init__()
        self.attention, self.norms, self.pre = attention, nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2)), pre
        self.net = net = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), *middle, nn.Linear(4 * WIDTH, WIDTH))
        self.drop, self.feed = nn.Dropout(dropout), lambda x: net(x)  # a copy of the block calls this very network

    def forward(self, x, mask=None):
        for norm, part in zip(self.norms, (lambda y: self.attention(y, mask), self.feed), strict=True):
            x = x + self.drop(part(norm(x))) if self.pre else norm(x + self.drop(part(x)))
        return x


class Triples(nn.Module):
    def __init__(self):
        super().__init__()
        net = nn.Sequential(nn.Linear(WIDTH, 99), nn.GELU(), nn.Linear(99, WIDTH))
        parts = Attention(lambda *given: masked(*given, torch.float32), 3, bias=False, buffer=True), net
        norms = [nn.ModuleList((nn.LayerNorm(WIDTH), None)) for _ in parts]  # before, and after
        self.layers = nn.ModuleList(map(nn.ModuleList, zip(norms, parts, (nn.Identity(), nn.Identity()), strict=True)))

    def forward(self, x, mask=None):
        for (before, _), part, residual in self.layers:
            x = residual(x) + part(before(x))
        return x


class Trained(nn.Module):
    def adam(self):  # large matrices decay
        groups = [{"params": [p for p in self.parameters() if (p.dim() > 1) is large]} for large in (True, False)]
        groups[1]["weight_decay"] = 0.0
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def update(self, optimizer, batch, step):  # the gradients are cleared at the end
        self.train().loss(*batch).backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def write(self, ids):  # seven more
        for _ in range(7):
            ids = torch.cat((ids, self(ids)[0][:, -1:].argmax(dim=-1)), dim=1)
        return ids


class Text(Trained):
    def __init__(self, block, frugal=False):
        super().__init__()
        self.tables = nn.ModuleDict({"tokens": nn.Embedding(IDS, WIDTH), "places": nn.Embedding(LONGEST, WIDTH)})
        self.blocks, self.norm = nn.ModuleList(block() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.output, self.drop, self.frugal = nn.Linear(WIDTH, IDS, bias=False), nn.Dropout(0.1), frugal
        for p in (p for p in self.parameters() if p.dim() > 1):
            nn.init.normal_(p, std=0.02)
        if frugal:
            self.tables["tokens"].weight = self.output.weight

    def states(self, ids):
        x = self.drop(self.tables["tokens"](ids) + self.tables["places"](torch.arange(ids.size(1))))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, ids, targets=None):  # one that is frugal makes logits of the last place alone, without targets
        logits = self.output(self.states(ids)[:, [-1]] if self.frugal and targets is None else self.states(ids))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def loss(self, ids):
        return self(ids[:, :-1], ids[:, 1:])[1]


class Former(Text):
    def forward(self, ids, targets=None):
        return F.log_softmax(self.output(self.states(ids)), dim=2), None

    def loss(self, ids):
        return F.nll_loss(self(ids[:, :-1])[0].transpose(2, 1), ids[:, 1:])


class Bert(Trained):
    def __init__(self):
        super().__init__()
        self.tokens, self.segments = (nn.Embedding(size, WIDTH, padding_idx=0) for size in (IDS, 3))
        self.blocks = nn.ModuleList(Block(Attention(masked, 3), nn.GELU()) for _ in range(2))
        self.places, self.norm = nn.Embedding(LONGEST, WIDTH), nn.LayerNorm(WIDTH)
        self.drop, self.words = nn.Dropout(0.1), nn.Linear(WIDTH, IDS)

    def forward(self, ids, segments):
        mask = (ids > 0)[:, None].repeat(1, ids.size(1), 1)[:, None]
        x = self.drop(self.norm(self.tokens(ids) + self.segments(segments) + self.places(torch.arange(ids.size(1)))))
        for block in self.blocks:
            x = block(x, mask)
        return self.words(x).log_softmax(dim=-1)

    def loss(self, ids, words):
        return F.nll_loss(self(ids, (ids > 0).long()).transpose(1, 2), words, ignore_index=0)


class Scheduled:  # sets the rate of an optimizer, and is none itself
    def __init__(self, model, rate):
        self.inner, self.steps, self.rate = torch.optim.Adam(model.parameters()), 0, rate
        self.zero_grad = self.inner.zero_grad

    def step(self):
        self.steps += 1
        self.inner.param_groups[0]["lr"] = self.rate(self.steps)
        self.inner.step()


def falling(step):
    return WIDTH**-0.5 * min(step**-0.5, step * 400**-1.5)


def cosine(step):  # it begins at 0
    return 5e-4 * min(1, (step - 1) / 50) * (1 + math.cos(math.pi * (step - 1) / 2000)) / 2


class Reverser(Trained):  # an encoder that reads vectors, not ids
    def __init__(self):
        super().__init__()
        self.first, self.places, middle = nn.Linear(IDS, WIDTH), CLOCK, (nn.Dropout(0.1), nn.ReLU(inplace=True))
        self.encoder = nn.ModuleList(Block(Attention(masked, by_head=True), *middle) for _ in range(2))
        self.output = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), *middle, nn.Linear(WIDTH, IDS))

    def forward(self, x, mask=None):
        x = self.first(x) + self.places[: x.size(1)]
        for block in self.encoder:
            x = block(x, mask)
        return self.output(x)

    def loss(self, ids, answers):
        return F.cross_entropy(self(F.one_hot(ids, IDS).float()).view(-1, IDS), answers.view(-1))


class Words(Trained):  # the length comes first
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.2)
        self.embedding, self.encoder = nn.Embedding(IDS, WIDTH), nn.TransformerEncoder(layer, 2, None, False)
        self.output, self.drop = nn.Linear(WIDTH, IDS), nn.Dropout(0.2)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids):
        x = self.drop(self.embedding(ids) * math.sqrt(WIDTH) + CLOCK[: len(ids), None])
        return self.output(self.encoder(x, nn.Transformer.generate_square_subsequent_mask(len(ids))))

    def loss(self, ids):
        return F.cross_entropy(self(ids[:, :-1].T).view(-1, IDS), ids[:, 1:].T.reshape(-1))


nanogpt = Recipe(
    build=lambda: Text(lambda: Block(Attention(None), nn.GELU(), pre=True), frugal=True), pad=None, loss=Text.loss,
    logits=lambda model, ids: model(ids, ids)[0], optimizer=Text.adam, update=Text.update, write=Text.write,
)  # fmt: skip
mingpt = Recipe(
    build=lambda: Text(lambda: Block(Attention(masked, buffer=True), nn.GELU(), pre=True)), pad=None, loss=Text.loss,
    optimizer=Text.adam, update=Text.update, write=Text.write,
)  # fmt: skip
xtransformer = Recipe(
    build=lambda: Text(Triples), pad=None, loss=Text.loss, optimizer=Text.adam, update=Text.update, write=Text.write
)
former = Recipe(
    build=lambda: Former(lambda: Block(Attention(folded, 3, bias=False), nn.ReLU(), dropout=0.0)), pad=None,
    loss=Former.loss, optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4), write=Former.write,
)  # fmt: skip
bert = Recipe(
    build=Bert, logits=lambda model, ids: model(ids, (ids > 0).long()), loss=Bert.loss, update=Bert.update,
    optimizer=lambda model: Scheduled(model, falling), plan=falling,
)  # fmt: skip
reverser = Recipe(
    build=Reverser, pad=None, logits=lambda model, ids: model(F.one_hot(ids, IDS).float()), loss=Reverser.loss,
    optimizer=lambda model: Scheduled(model, cosine), update=Reverser.update, plan=cosine,
)  # fmt: skip
words = Recipe(
    build=Words, pad=None, logits=lambda model, ids: model(ids.T).transpose(0, 1), loss=Words.loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=5.0), update=Words.update,
)  # fmt: skip

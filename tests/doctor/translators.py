"""Small encoder–decoders, built as the best known are: their quirks in code of our own, and an adapter for each."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from annotated_course.doctor import Recipe
from annotated_course.doctor.recipe import tensor_of
from tests.doctor.texts import CLOCK, Scheduled

WIDTH, HEADS, IDS = 32, 4, 20
NORM = partial(nn.LayerNorm, WIDTH, eps=1e-6)


class Attention(nn.Module):
    def __init__(self, hidden=-1e9, bias=True):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias) for _ in range(4))
        self.hidden, self.drop, self.seen = hidden, nn.Dropout(0.1), None

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)

    def forward(self, query, memory, mask):
        made = (linear(x) for linear, x in zip(self.linears, (query, memory, memory), strict=False))
        q, k, v = (x.view(len(x), -1, HEADS, WIDTH // HEADS).transpose(1, 2) for x in made)
        self.seen = self.drop(self.scores(q, k).masked_fill(mask == 0, self.hidden).softmax(dim=-1))  # to be drawn
        return self.linears[3]((self.seen @ v).transpose(1, 2).flatten(2))


class InPlace(Attention):
    def scores(self, q, k):
        return q.mul_((WIDTH // HEADS) ** -0.5) @ k.transpose(-2, -1)


class DeviationNorm(nn.Module):  # by the unbiased deviation, to which ε is added
    def __init__(self):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias


class Round(nn.Module):  # round a sub-layer that is handed over, mostly as a lambda
    def __init__(self, norm=NORM, before=False):
        super().__init__()
        self.norm, self.drop, self.before = norm(), nn.Dropout(0.1), before

    def forward(self, x, sublayer):
        if self.before:
            return x + self.drop(sublayer(self.norm(x)))
        return self.norm(self.drop(sublayer(x)) + x)


class Holding(Round):  # a sub-layer that it holds; it adds in place
    def __init__(self, sublayer):
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x, *others):
        y = self.drop(self.sublayer(x, *others))
        y += x
        return self.norm(y)


class Layer(nn.Module):
    def __init__(self, cross, attention, around):
        super().__init__()
        self.attention, self.cross = attention(), attention() if cross else None
        self.net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, WIDTH))
        self.around = nn.ModuleList(around() for _ in range(2 + cross))

    def forward(self, x, mask, memory=None, seen=None):
        x = self.around[0](x, lambda x: self.attention(x, x, mask))
        if self.cross:
            x = self.around[1](x, lambda x: self.cross(x, memory, seen))
        return self.around[-1](x, self.net)


class Bare(Layer):
    def __init__(self, cross, attention, around):
        super().__init__(cross, lambda: around(attention()), nn.Identity)
        self.net = around(self.net)

    def forward(self, x, mask, memory=None, seen=None):
        x = self.attention(x, x, mask)
        return self.net(self.cross(x, memory, seen) if self.cross else x)


class Translator(nn.Module):
    def __init__(self, attention=Attention, around=Round, last=nn.Identity, layer=Layer, tied=False):
        super().__init__()
        self.tables, self.output = nn.ModuleList(nn.Embedding(IDS, WIDTH) for _ in range(2)), nn.Linear(WIDTH, IDS)
        stacks = ((layer(cross, attention, around) for _ in range(2)) for cross in (False, True))
        self.encoder, self.decoder = map(nn.ModuleList, stacks)
        self.lasts, self.drop = nn.ModuleList(last() for _ in range(2)), nn.Dropout(0.1)
        self.register_buffer("clock", CLOCK)
        for matrix in (p for p in self.parameters() if p.dim() > 1):
            nn.init.xavier_uniform_(matrix)
        if tied:
            self.tables[0].weight = self.output.weight = self.tables[1].weight

    def embed(self, table, ids):
        return self.drop(table(ids) * math.sqrt(WIDTH) + self.clock[: ids.size(1)])

    def encode(self, src, seen):
        x = self.embed(self.tables[0], src)
        for layer in self.encoder:
            x = layer(x, seen)
        return self.lasts[0](x)

    def decode(self, tgt, memory, seen, past):
        x = self.embed(self.tables[1], tgt)
        for layer in self.decoder:
            x = layer(x, past, memory, seen)
        return self.lasts[1](x)

    def masks(self, src, tgt):
        past = torch.ones(1, 1, tgt.size(1), tgt.size(1)).tril() == 1
        return (src != 1)[:, None, None], (tgt != 1)[:, None, None] & past

    def forward(self, src, tgt):
        seen, past = self.masks(src, tgt)
        return self.output(self.decode(tgt, self.encode(src, seen), seen, past))


def noam(step, factor=1.0, warm_up=4000):
    return factor * WIDTH**-0.5 * min(step**-0.5, step * warm_up**-1.5)


class Theirs(Recipe):
    bos, eos, pad, plan = 2, 3, 1, staticmethod(noam)

    def optimizer(self, model):
        return Scheduled(model, self.plan)

    def update(self, model, optimizer, batch, step):
        optimizer.zero_grad()
        self.loss(model.train(), *batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def loss(self, model, src, tgt):
        logits, answers = self.logits(model, src, tgt[:, :-1]), tgt[:, 1:].contiguous().view(-1)
        return F.cross_entropy(tensor_of(logits).view(-1, IDS), answers, ignore_index=self.pad, label_smoothing=0.1)

    def write(self, model, src):  # one row after the other, up to <eos>
        rows = []
        for row in src[:, None]:
            ids = torch.tensor([[self.bos]])
            while ids.size(1) < 9 and ids[0, -1] != self.eos:
                ids = torch.cat((ids, tensor_of(self.logits(model, row, ids))[:, -1:].argmax(dim=-1)), dim=1)
            rows.append(ids[0])
        return pad_sequence(rows, True, self.pad)


def divergence(log_probs, answers, pad, reduction):
    target = torch.full_like(log_probs, 0.1 / (IDS - 2)).scatter_(1, answers[:, None], 0.9)
    target[:, pad] = 0
    return F.kl_div(log_probs, target.masked_fill((answers == pad)[:, None], 0), reduction=reduction)


def softened(logits, answers, less=0.0):
    target = F.one_hot(answers, IDS) * (0.9 - 0.1 / (IDS - 1)) + 0.1 / (IDS - 1)
    least = less * torch.special.entr(target).sum(dim=-1)
    return (-(target * logits.log_softmax(dim=-1)).sum(dim=-1) - least)[answers != 1]


class AnnotatedTransformer(Translator):  # its output layer is called from outside, where also the masks are made
    def __init__(self):
        super().__init__(Attention, partial(Round, DeviationNorm, True), DeviationNorm)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(tgt, self.encode(src, src_mask[:, None]), src_mask[:, None], tgt_mask[:, None])

    def generator(self, states):
        return self.output(states).log_softmax(dim=-1)


class Harvard(Theirs):
    build, bos, eos, pad = AnnotatedTransformer, 0, 1, 2

    def logits(self, model, src, tgt):
        past = torch.ones(1, tgt.size(1), tgt.size(1)).tril() == 1
        return model.generator(model(src, tgt, (src != 2)[:, None], (tgt != 2)[:, None] & past))

    def loss(self, model, src, tgt):
        log_probs, answers = self.logits(model, src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten()
        return divergence(log_probs, answers, 2, "sum") / (answers != 2).sum()

    def optimizer(self, model):  # the schedule counts from 0, so that its first two rates are equal
        adam = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda step: self.plan(max(1, step)))

    def update(self, model, optimizer, batch, step):
        self.loss(model.train(), *batch).backward()
        for part in optimizer:
            part.step()
        optimizer[0].zero_grad(set_to_none=True)


harvard = Harvard()


def by_hkproj(model, src, tgt):  # whose model has no forward
    seen, past = (mask.int() for mask in model.masks(src, tgt))
    return model.output(model.decode(tgt, model.encode(src, seen), seen, past))


hkproj = Theirs(
    build=lambda: Translator(partial(Attention, bias=False), partial(Round, DeviationNorm, True), DeviationNorm),
    logits=by_hkproj, plan=None, optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-9),
)  # fmt: skip


class Gordicaleksa(Translator):  # all rows of its logits in one axis
    def __init__(self):
        super().__init__(partial(Attention, -torch.inf), partial(Round, NORM, True), NORM)

    def forward(self, src, tgt):
        return super().forward(src, tgt).log_softmax(dim=-1).reshape(-1, IDS)


gordicaleksa = Theirs(  # at fault: batchmean divides by all places
    build=Gordicaleksa, logits=lambda model, src, tgt: model(src, tgt).view(*tgt.shape, -1),
    loss=lambda model, src, tgt: divergence(model(src, tgt[:, :-1]), tgt[:, 1:].flatten(), 1, "batchmean"),
)  # fmt: skip


class Tunz(Translator):  # embeddings changed in place and shifted, half sines and half cosines
    def __init__(self):
        super().__init__(partial(InPlace, bias=False), partial(Round, NORM, True), NORM, tied=True)
        angles = torch.arange(64)[:, None] * 10000 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2 - 1))
        self.clock = torch.cat((angles.sin(), angles.cos()), dim=1)
        nn.init.normal_(self.output.weight, std=WIDTH**-0.5)

    def embed(self, table, ids):
        x = table(ids)
        x.masked_fill_((ids == 1)[..., None], 0)
        if table is self.tables[1]:
            x = F.pad(x[:, :-1], (0, 0, 1, 0))
        x *= WIDTH**0.5
        x += self.clock[: ids.size(1)]
        return self.drop(x)

    def masks(self, src, tgt):
        return super().masks(src, tgt * 0)


def slowly(step):
    return 2 * WIDTH**-0.5 * min(1.0, step / 16000) * max(step, 16000) ** -0.5


tunz = Theirs(
    build=Tunz, bos=4, eos=2, plan=slowly, write=None,
    loss=lambda model, src, tgt: softened(model(src, tgt[:, 1:]), tgt[:, 1:], less=1.0).mean(),
)  # fmt: skip


class Jadore(Translator):  # a norm after the embeddings, and its logits are divided where others multiply those
    def __init__(self):
        super().__init__(partial(Attention, bias=False), Holding, layer=Bare, tied=True)
        self.norms, self.output.bias = nn.ModuleList(NORM() for _ in range(2)), None

    def embed(self, table, ids):
        x = self.drop(table(ids) + self.clock[: ids.size(1)])
        return self.norms[int(table is self.tables[1])](x)

    def forward(self, src, tgt):
        logits = super().forward(src, tgt)
        logits *= WIDTH**-0.5
        return logits.view(-1, IDS)


jadore = Theirs(
    build=Jadore, logits=lambda model, src, tgt: model(src, tgt).view(*tgt.shape, -1),
    loss=lambda model, src, tgt: softened(model(src, tgt[:, :-1]), tgt[:, 1:].contiguous().view(-1)).sum(),
    plan=lambda step: noam(step, 2.0),
)  # fmt: skip


class Hyunwoongko(Translator):  # no √d_model, a table that is no buffer, queries hidden in place of keys
    def __init__(self):
        super().__init__(partial(Attention, -10000))
        vars(self)["clock"] = self._buffers.pop("clock")

    def embed(self, table, ids):
        return self.drop(table(ids) + self.clock[: ids.size(1)])

    def masks(self, src, tgt):
        seen, past = super().masks(src, tgt * 0)
        return seen, (tgt != 1)[:, None, :, None] & past.byte()


hyunwoongko = Theirs(
    build=Hyunwoongko, plan=lambda step: 1e-5, write=None,
    optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-5, weight_decay=5e-4, eps=5e-9),
)  # fmt: skip


class Brandokoch(Translator):  # cuts the last id off itself
    def forward(self, src, tgt):
        return super().forward(src, tgt[:, :-1])


brandokoch = Theirs(
    build=lambda: Brandokoch(partial(Attention, -torch.inf), tied=True),
    logits=lambda model, src, tgt: model(src, F.pad(tgt, (0, 1))),
)  # fmt: skip


class Bentrevett(Translator):  # learned positions, and it gives the weights of its attention, too
    def __init__(self):
        super().__init__(partial(Attention, -1e10))
        self.places, self.root = nn.Embedding(64, WIDTH), torch.sqrt(torch.FloatTensor([WIDTH]))
        nn.init.xavier_uniform_(self.places.weight)

    def embed(self, table, ids):
        return self.drop(table(ids) * self.root + self.places(torch.arange(ids.size(1)).repeat(len(ids), 1)))

    def forward(self, src, tgt):
        return super().forward(src, tgt), self.decoder[-1].cross.seen


bentrevett = Theirs(
    build=Bentrevett, optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=5e-4), plan=None,
    write=lambda model, src: torch.where((ids := Theirs().write(model, src)) == 3, 1, ids),  # without <eos>
)  # fmt: skip

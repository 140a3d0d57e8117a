"""Sixty faults to plant in the patient, as changes of its text, and the check that is meant for each."""

from pathlib import Path

from annotated_course.doctor import Recipe, Report
from tests.doctor import patient


def table(text: str) -> dict[str, tuple[str, str]]:
    """Read a table: for each name the changes and the checks."""
    rows = (row.split(" | ") for row in text.strip().replace("\n  ", "").splitlines())
    return {name: (changes, checks) for name, changes, checks in rows}


# name | changes | check: what it must say, check. A ¶ begins a line of the patient; two spaces go on with one here.
# A – before a check: it is meant for the fault, and misses it.
STRUCTURE = table("""
causal mask in cross-attention | memory, memory, src_mask) →
   memory, memory, src_mask.expand(-1, -1, x.size(1), -1).tril())
   | hidden: mask of the future in decoder.0.cross_attention
causal mask in the encoder | layer(x, src_mask) → layer(x, src_mask.expand(-1, -1, x.size(1), -1).tril())
   | hidden: mask of the future in encoder.0
layers shared by [block] * N | [EncoderLayer() for _ in range(LAYERS)] → [EncoderLayer()] * LAYERS
   | one_layer: encoder.0 = encoder.1
residual of the normalised input | return self.norm(x + → x = self.norm(x)¶    return (x + | free_road: normalised input
no residual round cross-attention | self.residuals[1](x, lambda x: → self.residuals[1].norm(
   | residual: decoder.0.cross_attention
no activation | F.relu(self.w_1(x)) → self.w_1(x) | activation: w_1
an activation after the second matrix, too | return self.w_2(self.dropout → return F.relu(self.w_2(self.dropout;
   self.w_1(x)))) → self.w_1(x))))) | activation: one after encoder.0.feed_forward.w_2
√d_model missing | self.embedding(ids) * math.sqrt(D_MODEL) → self.embedding(ids) | embeddings: × 1 (√d_model is 5.66)
√d_model in place of √d_k | sqrt(self.d_k) → sqrt(D_MODEL) | attention: as if √d_model
embeddings scaled twice | self.embedding(ids) * math.sqrt(D_MODEL) → self.embedding(ids) * D_MODEL
   | embeddings: √d_model twice
all clocks alike | torch.arange(0, D_MODEL, 2) * → torch.ones(D_MODEL // 2) * | positions: clocks went alike
clocks without their minus | (-math.log → (math.log | positions: clock
sine everywhere | torch.cos(place → torch.sin(place | positions: all sine
the same position for all | self.table[start : start + x.size(1)] → self.table[start] | positions: the same vector
positions by row, not by place | self.table[start : start + x.size(1)] → self.table[: x.size(0), None] | company
no positions in the decoder | self.embed(tgt, start) → self.dropout(self.embedding(tgt) * math.sqrt(D_MODEL))
   | positions: decoder: nothing
dropout after the sum | x + self.dropout(sublayer(x)) → self.dropout(x + sublayer(x)) | late_dropout: on the sum
tie broken by loading | def embed(self → def load_state_dict(self, state, strict=True, assign=True):
  ¶    new = {name: weight.clone() for name, weight in state.items()}
  ¶    return super().load_state_dict(new, strict, assign)¶¶def embed(self | ties: load_state_dict
padding_idx of <bos> | padding_idx=PAD → padding_idx=BOS | blank: padding_idx
LayerNorm over the positions | return self.norm(x + self.dropout(sublayer(x))) → x = x + self.dropout(sublayer(x))
  ¶    x = (x - x.mean(1, True)) / (x.std(1, False, True) + 1e-5)¶    return self.norm.weight * x + self.norm.bias
   | free_road: one over the positions
LayerNorm by the variance | return self.norm(x + self.dropout(sublayer(x))) → x = x + self.dropout(sublayer(x))
  ¶    return self.norm(x) / x.std(dim=-1, keepdim=True) | free_road: no norm over the features
no LayerNorm round cross-attention | Residual() for _ in range(3)]) →
   Residual() for _ in range(3)])¶    self.residuals[1].norm = nn.Identity() | norms: decoder.0.feed_forward
pre-norm without its last norm | return self.norm(x + self.dropout(sublayer(x))) →
   return x + self.dropout(sublayer(self.norm(x))) | norms: needs a last norm
statistics of the batch | nn.LayerNorm → nn.BatchNorm1d;
   self.norm(x + self.dropout(sublayer(x))) → self.norm((x + self.dropout(sublayer(x))).mT).mT
   | company: in training mode
values from the keys' matrix | self.w_v(value) → self.w_k(value) | attention: keys serve as values
logits through a ReLU | return self.output(x) → return F.relu(self.output(x)) | probabilities: an activation
detached between layers | layer(x, src_mask) → layer(x.detach(), src_mask) | reached: encoder.0
weights divided after the softmax | / math.sqrt(self.d_k) → ;
   .softmax(dim=-1) → .softmax(dim=-1) / math.sqrt(self.d_k) | attention: what is made of it
two softmaxes | scores.softmax(dim=-1) → scores.softmax(dim=-1).softmax(dim=-1) | attention: what is made of it
mask after the softmax | scores = scores.masked_fill(mask == 0, -1e9) → ;
   .softmax(dim=-1) → .softmax(dim=-1).masked_fill(mask == 0, 0.0) | attention: what is made of it
−1e-9 in place of −1e9 | -1e9 → -1e-9 | future
heads cut across | -1, HEADS, self.d_k).transpose(1, 2) → HEADS, -1, self.d_k) | future: axes are mixed up
softmax over the queries | softmax(dim=-1) → softmax(dim=-2) | rows_sum_to_one
source shifted | self.embed(src) → self.embed(F.pad(src[:, 1:], (0, 1))) | source: token 1 of 6
memory of the first layer | x = layer(x, src_mask) → return layer(x, src_mask) | reached: encoder.1
one module for self- and cross-attention | self.cross_attention = MultiHeadAttention(), →
   self.cross_attention = 2 * (MultiHeadAttention(),)¶    _ = | one_layer: self_attention = decoder.0.cross_attention
copied layers | nn.init.xavier_uniform_(matrix) →
   nn.init.xavier_uniform_(matrix)¶    self.encoder[1].load_state_dict(self.encoder[0].state_dict()) | no_twins
padding read in cross-attention | memory, memory, src_mask) → memory, memory, torch.ones(1)) | padding
layers in a plain list | nn.ModuleList([DecoderLayer() for _ in range(LAYERS)]) →
   [DecoderLayer() for _ in range(LAYERS)] | steady: plain list
""")
TRAINING = table("""
gradients kept | optimizer.zero_grad() → | gradient: step before
cross-attention not in the optimizer | p for p in model.parameters() if →
   p for name, p in model.named_parameters() if "cross" not in name and | moves: cross_attention
second group without its rate | for group in optimizer.param_groups: → for group in optimizer.param_groups[:1]:
   | rates: each group
updates in evaluation mode | model.train() → model.eval() | wakes
accumulation that clears its gradients | scaler.scale(loss → optimizer.zero_grad()¶    scaler.scale(loss
   | gradient: 4 rows it holds
a mean of means | loss(model, src, tgt, "sum") / count → loss(model, src, tgt) / 2 | gradient: 4 rows it holds
clipped before unscaling | scaler.unscale_(optimizer) → | gradient: before it is unscaled
clipped after the step | scaler.step(optimizer) → ;
   scaler.unscale_(optimizer) → scaler.unscale_(optimizer)¶scaler.step(optimizer) | gradient: clipped after
a step for each part of the batch | scaler.unscale_(optimizer) → ; nn.utils.clip_grad_norm_(model.parameters(), 1.0) → ;
   scaler.step(optimizer)¶scaler.update() → ; scaler.scale(loss → optimizer.zero_grad()¶    scaler.scale(loss;
   .backward() → .backward()¶    scaler.step(optimizer)¶    scaler.update() | gradient: 2 steps in one update
a rate that never falls | min(step**-0.5, step * WARMUP**-1.5) → step * WARMUP**-1.5 | falls
a new optimizer in each update | model.train() → model.train()¶optimizer = type(optimizer)(optimizer.param_groups)
   | gradient: another optimizer
a source that lives on | model.encode(src, src_mask) → vars(model).setdefault("memory", model.encode(src, src_mask))
   | lives_on: lives on
encoder left frozen | nn.init.xavier_uniform_(matrix) →
   nn.init.xavier_uniform_(matrix)¶    self.encoder.requires_grad_(False) | reached: frozen
padding counted | ignore_index=PAD, → | cross_entropy: padding counts
answers not shifted | tgt[:, :-1]), tgt[:, 1:] → tgt[:, :-1]), tgt[:, :-1] | cross_entropy: answers are the inputs
softmax before cross_entropy | logits.mT → logits.softmax(dim=-1).mT | cross_entropy: softmax comes before
<eos> ignored in place of padding | ignore_index=PAD → ignore_index=EOS | cross_entropy: ignored
dropout in writing | model.eval() → model.train() | reads_back: dropout
positions of the cache at 0 | start=ids.size(1) - 1 → start=0 | reads_back: cache, writes: positions
a cache that lives on | caches = padding_mask(src), [{} for _ in model.decoder] →
   caches = padding_mask(src), vars(model).setdefault("caches", [{} for _ in model.decoder]) | lives_on: lives on
writing ends with the first row's end | not done.all() → not done.any() | writes
""")
FAULTS = STRUCTURE | TRAINING


def sick(changes: str) -> Recipe:
    """Plant a fault: a patient with a changed text."""
    source = Path(patient.__file__).read_text(encoding="utf-8")
    for change in changes.split(";"):
        old, new = (part.strip().replace("¶", "\n    ") for part in change.split("→"))
        assert old in source, old
        source = source.replace(old, new)
    names: dict[str, Recipe] = {}
    exec(compile(source, "patient.py", "exec"), names)
    return names["RECIPE"]


def named(report: Report, checks: str) -> bool:
    """Tell whether a check that is meant for a fault found it, and says what it must."""
    meant = (check.partition(": ") for check in checks.removeprefix("–").split(", "))
    found = {each.check.name: str(each) for each in report if each.mark in "✗~" and "raised" not in each.result}
    return any(name in found and words in found[name] for name, _, words in meant)

"""The schedule, the loss, one update, and the whole loop with its files."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional as F

from annotated import training
from annotated.checkpoint import load_checkpoint
from annotated.data import Batch, Pairs, pad
from annotated.decoding import translate
from annotated.training import (
    TrainingOptions,
    label_smoothed_loss,
    make_optimizer,
    noam_rate,
    train,
    train_step,
    update,
)
from annotated.transformer import Transformer, TransformerConfig
from annotated.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary, WordTokenizer, load_tokenizer

VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=2, max_length=17)


def make_model(**changes) -> Transformer:
    return Transformer(TransformerConfig(VOCAB, **(SIZES | dict(dropout=0.0) | changes)))


def make_batch(*lengths: tuple[int, int]) -> Batch:
    """Make random sentences with these numbers of source and target words."""

    def words(count: int) -> list[int]:
        return torch.randint(len(SPECIALS), VOCAB, (count,)).tolist()

    return Batch(pad([[*words(n), EOS] for n, _ in lengths]), pad([[BOS, *words(m), EOS] for _, m in lengths]))


# The schedule


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1 / 32), (2, 2 / 32), (4, 4 / 32), (5, 1 / (4 * math.sqrt(5))), (16, 1 / 16), (64, 1 / 32)]
)
def test_the_rate_by_hand(step, rate):
    # d_model = 16 gives the factor 1/4; warmup = 4 gives min(1/√step, step/8).
    assert noam_rate(step, d_model=16, warmup=4) == pytest.approx(rate)


def test_the_papers_base_model_peaks_at_seven_ten_thousandths():
    assert noam_rate(4000, 512, 4000) == pytest.approx(6.99e-4, rel=1e-3)


@given(step=st.integers(1, 10**6), d_model=st.integers(1, 1024), warmup=st.integers(1, 10**5))
def test_the_rate_is_highest_at_warmup(step, d_model, warmup):
    highest = noam_rate(warmup, d_model, warmup)
    assert highest == pytest.approx((d_model * warmup) ** -0.5)
    assert noam_rate(step, d_model, warmup) <= highest * (1 + 1e-12)


@pytest.mark.parametrize(("step", "warmup"), [(0, 4), (-1, 4), (1, 0)])
def test_steps_count_from_one(step, warmup):
    with pytest.raises(ValueError, match=f"step={step} and warmup={warmup} count from 1"):
        noam_rate(step, 16, warmup)


# The loss


def test_the_smoothed_distribution_is_the_table_written_by_hand():
    # Four tokens can occur, so each gets 0.2 / 4; the right one keeps 0.8 besides.
    target = torch.tensor([3, 1, PAD, 4])
    expected = torch.tensor(
        [
            [0.0, 0.05, 0.05, 0.85, 0.05],
            [0.0, 0.85, 0.05, 0.05, 0.05],
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.05, 0.05, 0.05, 0.85],
        ]
    )
    logits = torch.randn(4, 5, requires_grad=True)
    label_smoothed_loss(logits, target, smoothing=0.2, reduction="sum").backward()
    # The gradient of a cross-entropy is p − q; where nothing counts it is zero.
    counts = (target != PAD)[:, None]
    torch.testing.assert_close(logits.softmax(-1) * counts - logits.grad, expected)


def test_the_loss_by_hand():
    # p = (0.1, 0.2, 0.3, 0.4), the right token has 0.3, and ε = 0.3 is shared by the three tokens that can occur.
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log() + 7
    expected = -(0.1 * math.log(0.2) + 0.8 * math.log(0.3) + 0.1 * math.log(0.4))
    assert label_smoothed_loss(logits, torch.tensor([2]), smoothing=0.3).item() == pytest.approx(expected)


def test_positions_of_padding_count_for_nothing():
    logits = torch.randn(2, 7, 5, requires_grad=True)
    target = torch.randint(1, 5, (2, 7))
    target[0, 3:] = target[1, 5:] = PAD
    loss = label_smoothed_loss(logits, target, 0.1)
    loss.backward()
    assert (logits.grad[target == PAD] == 0).all()
    assert (logits.grad[target != PAD] != 0).all()
    torch.testing.assert_close(loss, label_smoothed_loss(logits[target != PAD], target[target != PAD], 0.1))


def test_mean_and_sum():
    logits, target = torch.randn(3, 7, 5), torch.randint(1, 5, (3, 7))
    target[:, 5:] = PAD
    total = label_smoothed_loss(logits, target, 0.1, reduction="sum")
    torch.testing.assert_close(total, 15 * label_smoothed_loss(logits, target, 0.1))


@given(smoothing=st.floats(0, 0.99), seed=st.integers(0, 100))
def test_without_padding_the_loss_is_that_of_torch(smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 7, 5, generator=generator)
    target = torch.randint(5, (3, 7), generator=generator)
    theirs = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=smoothing)
    torch.testing.assert_close(label_smoothed_loss(logits, target, smoothing, pad_id=None), theirs)


@pytest.mark.parametrize("pad_id", [0, 2])
def test_without_smoothing_the_loss_is_that_of_torch(pad_id):
    logits, target = torch.randn(3, 7, 5), torch.randint(5, (3, 7))
    theirs = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad_id)
    torch.testing.assert_close(label_smoothed_loss(logits, target, 0.0, pad_id), theirs)


@given(
    target=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    smoothing=st.floats(0, 0.99),
    pad_id=st.none() | st.integers(0, 4),
    scale=st.sampled_from([0.0, 1.0, 1e4, -1e4]),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_the_loss_is_finite_for_any_target(target, smoothing, pad_id, scale, reduction):
    logits = (scale * torch.arange(5.0)).repeat(len(target), 1).requires_grad_()
    loss = label_smoothed_loss(logits, torch.tensor(target), smoothing, pad_id, reduction=reduction)
    loss.backward()
    assert loss.isfinite()
    assert loss >= 0
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nothing_but_padding_costs_nothing(rows, reduction):
    logits = torch.randn(rows, 5, requires_grad=True)
    loss = label_smoothed_loss(logits, torch.full((rows,), PAD), reduction=reduction)
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


def test_bfloat16_logits_are_compared_in_float32():
    logits, target = torch.randn(7, 5).bfloat16(), torch.randint(1, 5, (7,))
    loss = label_smoothed_loss(logits, target)
    assert loss.dtype == torch.float32
    assert loss == label_smoothed_loss(logits.float(), target)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0, math.nan])
def test_smoothing_has_a_range(smoothing):
    with pytest.raises(ValueError, match=f"smoothing={smoothing} must be at least 0 and below 1"):
        label_smoothed_loss(torch.zeros(1, 5), torch.tensor([1]), smoothing)


# One update


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same_update(model: Transformer, other: Transformer) -> None:
    for tensors in (gradients, lambda m: dict(m.named_parameters())):
        torch.testing.assert_close(tensors(model), tensors(other), rtol=0, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 4, 17, 256])
@pytest.mark.parametrize("tied", [True, False])
def test_the_fast_update_is_the_textbook_update(monkeypatch, chunk, tied):
    monkeypatch.setattr(training, "LOSS_CHUNK", chunk)  # the batch has 17 target tokens
    model = make_model(tie_embeddings=tied)
    textbook = copy.deepcopy(model)
    src, tgt = make_batch((2, 6), (4, 3), (3, 5))

    loss = label_smoothed_loss(textbook(src, tgt[:, :-1]), tgt[:, 1:], 0.2)
    loss.backward()
    torch.optim.SGD(textbook.parameters(), lr=0.5).step()

    assert train_step(model, src, tgt, torch.optim.SGD(model.parameters(), lr=0.5), 0.2) == pytest.approx(loss.item())
    assert_same_update(model, textbook)


def test_the_optimizer_is_the_papers():
    optimizer = make_optimizer(make_model())
    assert isinstance(optimizer, torch.optim.Adam)
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.9, 0.98), 1e-9)
    assert optimizer.defaults["weight_decay"] == 0


def test_several_batches_accumulate_to_one():
    model = make_model()
    other = copy.deepcopy(model)
    whole = make_batch((3, 6), (4, 6), (2, 1), (2, 2), (1, 1))
    # The halves have 14 and 7 target tokens: a mean of means would be wrong.
    halves = [Batch(*(side[rows] for side in whole)) for rows in (slice(0, 2), slice(2, 5))]
    losses = [
        update(m, batches, torch.optim.SGD(m.parameters(), lr=0.5))
        for m, batches in ((model, [whole]), (other, halves))
    ]
    assert losses[0] == pytest.approx(losses[1])
    assert_same_update(model, other)


def test_an_update_forgets_the_last_ones_gradients():
    model = make_model()
    batch = make_batch((2, 3), (4, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train_step(model, *batch, optimizer)
    first = gradients(model)
    train_step(model, *batch, optimizer)
    torch.testing.assert_close(gradients(model), first)


def test_columns_of_padding_change_nothing():
    model = make_model()
    other = copy.deepcopy(model)
    src, tgt = make_batch((2, 5), (4, 3))
    wider = F.pad(src, (0, 3), value=PAD), F.pad(tgt, (0, 2), value=PAD)
    losses = [
        train_step(m, *batch, torch.optim.SGD(m.parameters(), lr=0.5))
        for m, batch in ((model, (src, tgt)), (other, wider))
    ]
    assert losses[0] == pytest.approx(losses[1])
    assert_same_update(model, other)


def test_the_target_is_read_without_its_last_token_and_predicted_without_its_first():
    model = make_model()
    src, tgt = make_batch((2, 4), (4, 4))
    heard = []
    handle = model.tgt_embedding.register_forward_hook(lambda module, inputs, output: heard.append(inputs[0]))
    train_step(model, src, tgt, torch.optim.SGD(model.parameters(), lr=0.0))
    handle.remove()
    assert torch.equal(heard[0], tgt[:, :-1])


def test_bfloat16_is_close_to_float32():
    model = make_model(d_model=32, d_ff=64)
    other = copy.deepcopy(model)
    batch = make_batch((2, 6), (4, 3), (3, 5))
    losses = [
        train_step(m, *batch, torch.optim.SGD(m.parameters(), lr=0.5), bf16=bf16)
        for m, bf16 in ((model, False), (other, True))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert losses[1] != losses[0]
    flat, rounded = (torch.cat([g.flatten() for g in gradients(m).values()]) for m in (model, other))
    assert rounded.dtype == torch.float32
    assert F.cosine_similarity(flat, rounded, dim=0) > 0.999
    assert all(p.dtype == torch.float32 for p in other.parameters())


def test_twenty_steps_give_the_same_losses_on_every_torch():
    # The numbers were computed once; they hold on torch 2.3.1 and 2.13.0, dropout included.
    model = make_model(dropout=0.1)
    batches = [make_batch((2, 6), (4, 3), (3, 5)), make_batch((7, 2), (5, 11))]
    optimizer = make_optimizer(model)
    losses = []
    for step in range(1, 21):
        optimizer.param_groups[0]["lr"] = noam_rate(step, model.config.d_model, warmup=50)
        losses.append(train_step(model, *batches[step % 2], optimizer))
    expected = {1: 3.0602, 10: 2.6475, 19: 2.2128, 20: 2.3492}
    assert {step: losses[step - 1] for step in expected} == pytest.approx(expected, abs=1e-4)


def test_a_model_learns_one_batch_by_heart():
    model = make_model(d_model=16, d_ff=32, layers=1)
    src, tgt = make_batch((2, 6), (4, 3), (3, 5))
    optimizer = make_optimizer(model)
    optimizer.param_groups[0]["lr"] = 0.02
    losses = [train_step(model, src, tgt, optimizer, smoothing=0.0) for _ in range(40)]
    assert losses[0] > 2
    assert losses[-1] < 0.1
    target = tgt[:, 1:]
    assert (model(src, tgt[:, :-1]).argmax(-1) == target)[target != PAD].all()


# The loop

NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "sieben": "seven"}
OPTIONS = TrainingOptions(epochs=3, batch_tokens=40, accumulate=2, warmup=11, average=2)


def make_pairs(count: int) -> Pairs:
    """Make rows of German numbers and the same in English."""
    rows = [[list(NUMBERS)[i] for i in torch.randint(len(NUMBERS), (2 + n % 4,)).tolist()] for n in range(count)]
    return Pairs([" ".join(row) for row in rows], [" ".join(NUMBERS[word] for word in row) for row in rows])


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer(Vocabulary([*SPECIALS, *NUMBERS, *NUMBERS.values()]), ("de", "en"))


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    torch.manual_seed(0)
    return make_pairs(31)


def new_model(**changes) -> Transformer:
    torch.manual_seed(5)
    return Transformer(TransformerConfig(14, **(SIZES | dict(dropout=0.1) | changes)))


def run(tokenizer, pairs, out, options=OPTIONS, resume=False, **changes):
    model = new_model(**changes)
    metrics = train(model, tokenizer, pairs, Pairs(*(side[:5] for side in pairs)), out, options=options, resume=resume)
    return model, metrics


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tokenizer, pairs):
    """A run of three epochs, nothing in its way: its folder, its model and its metrics."""
    out = tmp_path_factory.mktemp("finished") / "runs" / "de-en"
    return out, *run(tokenizer, pairs, out)


def without_times(metrics: list[dict]) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in ("minutes", "tokens_per_second")} for line in metrics]


def read_metrics(out) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def files(out) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def assert_same_run(out, other) -> None:
    """Compare all weights of two runs bit for bit, their moments and random state, and their metrics but times."""
    assert files(out) == files(other)
    for name in files(out):
        if name.endswith(".safetensors"):
            torch.testing.assert_close(load_file(out / name), load_file(other / name), rtol=0, atol=0, msg=name)
    assert without_times(read_metrics(out)) == without_times(read_metrics(other))


def test_a_run_leaves_all_that_is_needed(finished, tokenizer):
    out, _, metrics = finished
    steps = [line["step"] for line in metrics]
    assert files(out) == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "state.safetensors",
        "tokenizer.json",
        *(f"checkpoints/{step:07}.safetensors" for step in steps[-2:]),
    }
    loaded, info = load_checkpoint(out)
    assert (info["src"], info["tgt"]) == ("de", "en")
    texts = ["eins zwei", "drei"]
    assert len(translate(loaded, load_tokenizer(out), texts, info["src"])) == 2
    assert load_tokenizer(out).vocabulary.words == tokenizer.vocabulary.words


def test_metrics_have_a_line_for_each_epoch(finished):
    out, _, metrics = finished
    assert read_metrics(out) == metrics
    assert [line["epoch"] for line in metrics] == [1, 2, 3]
    steps = [line["step"] for line in metrics]
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]]
    assert [line["rate"] for line in metrics] == [noam_rate(step, SIZES["d_model"], OPTIONS.warmup) for step in steps]
    assert metrics[-1]["loss"] < metrics[0]["loss"] < math.log(14) + 1
    assert all(0 <= line["val_bleu"] <= 100 and line["tokens_per_second"] > 0 for line in metrics)
    assert sorted(line["minutes"] for line in metrics) == [line["minutes"] for line in metrics]


def test_the_model_is_the_average_of_the_last_checkpoints(finished):
    out, model, _ = finished
    older, newer = (load_file(path) for path in sorted((out / "checkpoints").iterdir()))
    assert any(not torch.equal(older[name], newer[name]) for name in older)
    averaged = load_file(out / "model.safetensors")
    for name, weight in averaged.items():
        torch.testing.assert_close(weight, (older[name] + newer[name]) / 2)
    torch.testing.assert_close(dict(model.named_parameters()), averaged, rtol=0, atol=0, check_stride=False)


def test_the_same_run_gives_the_same_bits(finished, tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path)
    assert_same_run(tmp_path, finished[0])


def test_another_seed_gives_another_run(finished, tokenizer, pairs, tmp_path):
    _, metrics = run(tokenizer, pairs, tmp_path, replace(OPTIONS, seed=1, epochs=1))
    assert metrics[0]["loss"] != finished[2][0]["loss"]


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_resumed_run_is_the_uninterrupted_one(finished, tokenizer, pairs, tmp_path, epochs):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=epochs))
    torch.manual_seed(123)
    model, metrics = run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])
    assert without_times(metrics) == without_times(finished[2])
    torch.testing.assert_close(list(model.parameters()), list(finished[1].parameters()), rtol=0, atol=0)


def test_a_run_killed_within_an_epoch_goes_on_from_the_last_whole_one(
    finished, tokenizer, pairs, tmp_path, monkeypatch
):
    updates = finished[2][0]["step"] + 2

    def update_then_stop(*args, **kwargs):
        nonlocal updates
        updates -= 1
        if updates < 0:
            raise KeyboardInterrupt
        return update(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "update", update_then_stop)
        run(tokenizer, pairs, tmp_path)
    run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


@pytest.mark.parametrize("name", ["save_tensors", "write_whole", "_save_average", "_save_state"])
def test_a_run_killed_while_it_saves_goes_on_from_the_last_whole_epoch(
    finished, tokenizer, pairs, tmp_path, monkeypatch, name
):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2))

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, name, stop)
        run(tokenizer, pairs, tmp_path, resume=True)
    run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


def test_a_run_out_of_time_leaves_a_model_and_goes_on_where_it_was(finished, tokenizer, pairs, tmp_path):
    brief = replace(OPTIONS, max_minutes=1e-9)
    _, metrics = run(tokenizer, pairs, tmp_path, brief)
    assert [line["step"] for line in metrics] == [1]
    assert metrics[0]["epoch"] == pytest.approx(1 / finished[2][0]["step"])
    loaded, _ = load_checkpoint(tmp_path)
    assert len(translate(loaded, load_tokenizer(tmp_path), ["eins zwei"], "de")) == 1

    with pytest.raises(ValueError, match="the run has done 0 epochs .*--max-minutes"):
        run(tokenizer, pairs, tmp_path, brief, resume=True)
    _, metrics = run(tokenizer, pairs, tmp_path, resume=True)
    assert [line["step"] for line in metrics] == [1, *(line["step"] for line in finished[2])]
    for name in ("state.safetensors", "model.safetensors"):
        ours, theirs = load_file(tmp_path / name), load_file(finished[0] / name)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_finished_run_stays_as_it_is(finished, tokenizer, pairs):
    out = finished[0]
    before = {name: (out / name).read_bytes() for name in files(out)}
    with pytest.raises(ValueError, match=r"the run has done 3 epochs .*--epochs"):
        run(tokenizer, pairs, out, resume=True)
    assert {name: (out / name).read_bytes() for name in files(out)} == before


def test_what_a_run_killed_early_left_behind_is_not_averaged_in(finished, tokenizer, pairs, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "0000002.safetensors").write_bytes(b"of another model")
    run(tokenizer, pairs, tmp_path)
    assert_same_run(tmp_path, finished[0])


def test_nothing_is_pickled(finished, tokenizer, pairs, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickled")

    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2), resume=True)
    load_checkpoint(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*.*")} == {".json", ".jsonl", ".safetensors"}


def test_a_run_is_never_overwritten(finished, tokenizer, pairs):
    with pytest.raises(FileExistsError, match=r"de-en already holds a run.*--resume"):
        run(tokenizer, pairs, finished[0])


def test_there_must_be_a_run_to_resume(tokenizer, pairs, tmp_path):
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        run(tokenizer, pairs, tmp_path, resume=True)
    assert files(tmp_path) == set()


def test_a_run_resumes_with_its_own_model_only(finished, tokenizer, pairs):
    with pytest.raises(ValueError, match="the weights are not this model's"):
        run(tokenizer, pairs, finished[0], resume=True, d_ff=12)


def test_too_long_pairs_are_left_out_and_counted(tokenizer, pairs, tmp_path, capsys):
    longer = Pairs([*pairs.source, "eins " * 20], [*pairs.target, "one"])
    val = Pairs(*(side[:5] for side in pairs))
    options = replace(OPTIONS, epochs=1)
    train(new_model(), tokenizer, longer, val, tmp_path, options=options)
    assert "1 of 32 training pairs are longer than 17 tokens and left out" in capsys.readouterr().out


def test_a_too_long_pair_for_validation_is_an_error_before_any_work_is_lost(tokenizer, pairs, tmp_path):
    val = Pairs(["eins", "eins " * 20], ["one", "one"])
    with pytest.raises(ValueError, match=r"21 tokens long.* 17"):
        train(new_model(), tokenizer, pairs, val, tmp_path, options=OPTIONS)
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_learns_to_translate(tokenizer, tmp_path):
    options = TrainingOptions(epochs=5, batch_tokens=64, warmup=40, rate=0.2, average=2)
    model = new_model(d_model=32, d_k=16, d_v=16, d_ff=64, layers=1, dropout=0.0)
    metrics = train(model, tokenizer, make_pairs(300), make_pairs(30), tmp_path, options=options)
    assert metrics[0]["val_bleu"] < 10
    assert metrics[-1]["val_bleu"] > 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("max_minutes", 0.0),
        ("batch_tokens", -1),
        ("accumulate", 0),
        ("warmup", 0),
        ("rate", -0.5),
        ("average", 0),
    ],
)
def test_options_that_make_no_sense_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be above 0"):
        TrainingOptions(**{name: value})


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_the_smoothing_option_has_a_range(smoothing):
    with pytest.raises(ValueError, match=f"smoothing={smoothing} must be"):
        TrainingOptions(smoothing=smoothing)

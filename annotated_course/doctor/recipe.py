"""What the doctor knows of a model: how it is made, called, trained and used, as its owner says in a few lines."""

import inspect
import io
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from annotated.config import BOS, EOS, PAD
from annotated_course.own_line import NOT_THE_READERS, own_line

KINDS = ("encoder-decoder", "language model", "encoder")
LETTERS = "abcdefghij"
# Eight words to learn by heart. All begin with different letters and end with different ones.
EIGHT = ("badge", "faced", "decaf", "each", "chia", "haji", "gab", "jig")
LONGEST = EIGHT[:3]  # of one length: nothing is padded
LARGE = 5_000_000  # numbers in a model, from which on 64 bits take too long


class Recipe:
    """How a model is made, called, trained and used. Only `build` is needed; what is None is not examined.

    Of an encoder–decoder a batch is (src, tgt), of a language model (ids,), of an encoder (ids, answers), one to each.
    Rows are ids, padded on the right; a target and a text stand between `bos` and `eos`, a source ends with `eos`.
    `pad` is None if there is no padding.

    `loss(model, *batch)` is the mean per real token, `optimizer(model)` makes one, and `update(model, optimizer, batch,
    step)` does one update, counted from 1. `plan(step)` is the learning rate that you want there.
    `write(model, src)` writes greedily, for each row, from `bos` on; of a language model, `write(model, beginnings)`
    goes on from these. It returns ids, or (ids, logits) with the logits that each new id was chosen by. If it wants a
    third argument, as a function that computes a score does, it is given the reference. `words("train")` and
    `words("test")` are the examples, as tuples.

    `like` is a model of the course, or its configuration, `names` and `copy` say which parts of the two belong together
    (`annotated_course.doctor.parity`).
    """

    kind: str | None = None  # one of KINDS; by default as many inputs as `forward` takes
    vocabulary: int = 0  # as many logits as there are
    dtype = torch.float64  # or float32, if the model is large or can be called in nothing else
    skips = False  # does no output read <bos>?
    shifts = False  # does the model itself move its target by one?
    views = False  # does the loss take a `view` of slices?
    first: Any = None  # the model that was called first
    recognised = ""  # what the doctor found out by itself
    pad: int | None = PAD
    bos: int = BOS
    eos: int = EOS
    loss: Any = None
    optimizer: Any = None
    update: Any = None
    plan: Any = None
    write: Any = None
    words: Any = None
    like: Any = None
    names: Any = None
    copy: Any = None

    def __init__(self, **parts: Any):
        """Put parts in place of the class's own; they are called without `self`.

        Raises:
            ValueError: there is no part of this name.
        """
        if unknown := [name for name in parts if name not in PARTS]:
            raise ValueError(f"{unknown[0]}= is no part of a recipe; they are {', '.join(PARTS)}.")
        vars(self).update(parts)

    def build(self) -> nn.Module:
        """Make a model with random weights, others at each call."""
        raise NotImplementedError

    def logits(self, model: nn.Module, *ids: Tensor) -> Any:
        """Call the model: (batch, length, vocabulary), from the source and the target so far, or from the text."""
        return model(*ids)

    def batch(self, words: Sequence[str] = EIGHT) -> tuple[Tensor, ...]:
        """Write words as ids: each to be spelled backwards, or to be continued."""
        letters = [i for i in range(4, 4 + len(LETTERS) + 3) if i not in (self.pad, self.bos, self.eos)]
        rows = [[letters[LETTERS.index(letter)] for letter in word] for word in words]
        if self.kind == "language model":
            return (self._padded([[self.bos, *row, self.eos] for row in rows]),)
        sources, backwards = [[*row, self.eos] for row in rows], [[*row[::-1], self.eos] for row in rows]
        targets = backwards if self.kind == "encoder" else [[self.bos, *row] for row in backwards]
        return self._padded(sources), self._padded(targets)

    def asked(self, *batch: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Part a batch into what the model reads and the answers, an id for each position."""
        *src, tgt = batch
        return (tuple(src), tgt) if self.kind == "encoder" else ((*src, tgt[:, :-1]), tgt[:, 1:])

    def _padded(self, rows: list[list[int]]) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [self.pad or 0] * (longest - len(row)) for row in rows])


KNOWN = ("batch", "asked", "dtype", "skips", "shifts", "views", "first", "recognised")
PARTS = sorted(name for name in vars(Recipe) if name[0] != "_" and name not in KNOWN)


def make_recipe(model: Any, **parts: Any) -> Recipe:
    """Make a recipe of what makes a model, or of a `Recipe`, and of parts in place of its own.

    Then the model is called once, to note its kind and vocabulary, and to say first what is wrong with the recipe.
    """
    recipe = model() if isinstance(model, type) and issubclass(model, Recipe) else model
    if isinstance(model, nn.Module):
        raise ValueError(
            f"this {type(model).__name__} is made already: give its class, or a function that makes one, "
            "since the doctor needs several."
        )
    if not isinstance(recipe, Recipe):
        if not callable(model):
            raise ValueError(f"expected an nn.Module class, a function or a Recipe; got {type(model).__name__}.")
        recipe = Recipe(build=model)
    Recipe.__init__(recipe, **parts)
    default = torch.get_default_dtype()
    try:
        _look_once(recipe)
    finally:
        torch.set_default_dtype(default)
    return recipe


def _look_once(recipe: Recipe) -> None:
    """Make the model and call it on eight words, so that what is wrong with the recipe itself is said first."""
    hint = "called without arguments: sizes belong into a function that makes the model"
    torch.manual_seed(0)
    model = _attempt("build()", hint, recipe.build)
    if not isinstance(model, nn.Module):
        raise ValueError(f"build() gave {_kind_of(model)}, not an nn.Module.")
    own_call = "logits" in vars(recipe) or type(recipe).logits is not Recipe.logits
    call, more = (recipe.logits, 1) if own_call else (model.forward, 0)
    asked = max(1, arguments(call, 2 + more) - more)  # where all may be left out, the first are the ids
    if recipe.kind is None and arguments(call, 1 + more) - more < asked == 2:  # of any number, one may be enough
        recipe.kind = KINDS[1]
        with suppress(ValueError):
            return _look_once(recipe)
        recipe.kind = None
    if recipe.kind is None and asked not in (1, 2):
        raise ValueError(
            f"{type(model).__name__}.forward takes {inspect.signature(model.forward)}; the doctor has "
            "(src, tgt) or (ids): give logits=lambda model, src, tgt: …, which calls it with the rest."
        )
    recipe.kind = recipe.kind or KINDS[0 if asked == 2 else 1]
    if recipe.kind not in KINDS:
        raise ValueError(f"kind={recipe.kind!r} is none of {', '.join(map(repr, KINDS))}.")
    ids, _ = recipe.asked(*recipe.batch(LONGEST if recipe.pad is None else EIGHT))
    ids = tuple(rows.contiguous() for rows in ids)
    shapes, highest = ", ".join(f"{tuple(rows.shape)}" for rows in ids), max(int(rows.max()) for rows in ids)
    situation = f"given ids from 0 to {highest}, {shapes}, in 64 bits"
    numbers = sum(p.numel() for p in model.parameters())
    if numbers > LARGE:
        recipe.dtype = torch.float32
        recipe.recognised = f"it has {numbers / 1e6:.0f} million numbers, and all have 32 bits here, for speed"
    output, error = None, None
    try:
        torch.set_default_dtype(recipe.dtype)
        output = _attempt("the model", situation, lambda: recipe.logits(model.to(recipe.dtype).eval(), *ids))
        error = _loss_raises(recipe, model)
    except ValueError as raised:
        error = raised
    if error:  # once more, built in 32 bits
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        with suppress(Exception, SystemExit):
            model = recipe.build().float().eval()
            again = recipe.logits(model, *ids)
            if not _loss_raises(recipe, model) or output is None:
                output, recipe.dtype = again, torch.float32
                recipe.recognised = recipe.recognised or "it can be called in 32 bits alone, so all numbers have 32"
        torch.set_default_dtype(recipe.dtype)
    recipe.views = "view size" in str(error)
    if output is None and error:
        raise error
    logits, due = tensor_of(output), tuple(ids[-1].shape)
    given = tuple(logits.shape) if isinstance(logits, Tensor) else _kind_of(output)
    if given[:-1] != due:
        raise ValueError(
            f"from ids {shapes} the model made {given}, not {(*due, 'vocabulary')}: "
            "give logits=…, which returns a logit for each position and token, the batch first."
        )
    recipe.first, recipe.vocabulary = model, logits.size(-1)
    if recipe.vocabulary <= highest:
        raise ValueError(f"a vocabulary of {recipe.vocabulary} is too small: the doctor uses ids up to {highest}.")


def _loss_raises(recipe: Recipe, model: nn.Module) -> Exception | None:
    try:
        if recipe.loss:
            recipe.loss(model, *recipe.batch())
    except Exception as error:  # a check will say so
        return error
    return None


def tensor_of(output: Any) -> Any:
    """Find the logits in what a model returns: itself, its `logits`, or the first of several."""
    if isinstance(output, dict):
        return output.get("logits")
    return output[0] if isinstance(output, tuple | list) and output else output


def _attempt(what: str, situation: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        if isinstance(error, ModuleNotFoundError):
            situation = "install what it imports, or put it beside the file"
        raise ValueError(f"{what} raised {said(error)} ({situation}).") from error


def said(error: BaseException) -> str:
    """Write an error as one short line, with the innermost of the reader's own lines, if there is one."""
    line = own_line(error)
    place = f" in {Path(line.filename).name}, line {line.lineno}" if line else ""
    words = str(error) or (line and line.line) or ""
    return f"{type(error).__name__}{place}: {' '.join(words.split())[:300]}"


def _kind_of(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def arguments(function: Callable[..., Any], offered: int = 2) -> int:
    """Count the arguments that a function must be given, by position, or what is offered if it takes any number."""
    parameters = inspect.signature(function).parameters.values()
    must = sum(each.default is each.empty and each.kind <= each.POSITIONAL_OR_KEYWORD for each in parameters)
    return max(must, offered) if any(each.kind is each.VAR_POSITIONAL for each in parameters) else must


@contextmanager
def loaded(place: str) -> Iterator[Any]:
    """Run a file, and lend what it calls by a name: `with loaded("my_model.py:MyTransformer") as model`.

    Meanwhile what stands beside the file can be imported, but replaces no module of Python or of a package. Afterwards
    `sys.path`, `sys.modules` and `sys.argv` are as before.
    """
    file, _, name = place.rpartition(":")
    if not file or not name:
        raise ValueError(f"{place!r} names no model: give FILE.py:NAME, of a class or a function that makes a model.")
    path = Path(file).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {file}.")
    before, folder = (sys.path, sys.argv, {**sys.modules}), str(path.parent)
    sys.path = sorted([folder, *sys.path], key=lambda each: not f"{each}{os.sep}".startswith(NOT_THE_READERS))
    sys.argv, printed = [file], io.StringIO()  # as in python my_model.py
    script = 'the doctor runs the file; put what only a script does below if __name__ == "__main__"'
    training = register_optimizer_step_pre_hook(lambda *_: sys.exit("it trains"))
    try:
        with training, redirect_stderr(printed):  # where arguments are missing, argparse prints several lines
            names = _attempt(file, script, lambda: runpy.run_path(str(path)))
        print(printed.getvalue(), end="", file=sys.stderr)
        if name not in names:
            own = [key for key, value in names.items() if getattr(value, "__module__", None) == "<run_path>"]
            raise ValueError(f"{file} defines no {name!r}; it defines {', '.join(own) or 'no class or function'}.")
        yield names[name]
    except (Exception, SystemExit) as error:
        if not (line := own_line(error)) or not line.filename.startswith(folder):
            raise
        raise ValueError(f"{file} raised {said(error)}.") from error  # in a part of a recipe, outside a check
    finally:
        sys.path, sys.argv, modules = before
        for key, module in [*sys.modules.items()]:
            origin = str(getattr(module, "__file__", None) or "")
            if key not in modules and origin.startswith(folder) and not origin.startswith(NOT_THE_READERS):
                del sys.modules[key]
        sys.modules.update(modules)

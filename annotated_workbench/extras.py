"""Packages that only some functions need: extras of this one bring them."""

from importlib import import_module
from typing import Any

EXTRAS = {
    **dict.fromkeys(("ftfy", "spacy"), "words"),
    **{"pooch": "download", "matplotlib": "plots", "IPython": "notebooks"},
    **dict.fromkeys(("ctranslate2", "onnx", "onnxscript", "transformers"), "engines"),
}


def load(module: str) -> Any:
    """Import a module of a package in `EXTRAS`; a ModuleNotFoundError says how to install the package."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"{package} is missing: pip install 'annotated[{EXTRAS[package]}]'"
        raise ModuleNotFoundError(message, name=package) from None

"""Packages that only some functions need: extras of this one bring them."""

from importlib import import_module
from typing import Any

EXTRAS = {
    **{"spacy": "words", "pooch": "download", "matplotlib": "plots", "seaborn": "plots", "IPython": "notebooks"},
    **dict.fromkeys(("ctranslate2", "onnx", "onnxscript", "transformers"), "engines"),
}


def load(module: str) -> Any:
    """Import a module of a package in `EXTRAS`.

    Raises:
        ModuleNotFoundError: the package is missing; says how to install it.
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"{package} is missing: pip install 'annotated[{EXTRAS[package]}]'"
        raise ModuleNotFoundError(message, name=package) from None
    return import_module(module)

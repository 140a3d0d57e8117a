# Every command sets up its own environment the first time: a few minutes, up to 3 GB, or 7 with a GPU. Try `make help`.

ifdef TORCH
VENV := .venv-torch-$(TORCH)
else
VENV := .venv
endif
PY := $(VENV)/bin/python
READY := $(VENV)/ready
BEGUN := $(VENV)/begun
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
EXECUTE := $(PY) -m nbconvert --execute --to notebook --log-level WARN --KernelManager.transport_encryption=auto
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb notebooks/solutions/*.ipynb))

# One thread a process: the saved numbers then agree, and two test processes do not fight over the cores. PASSIVE: threads
# that wait in a loop crawl where anything else is running: on two busy cores the tour takes minutes, not seconds.
PASSIVE := OMP_WAIT_POLICY=passive
ONE_THREAD := OMP_NUM_THREADS=1 $(PASSIVE)
# As many processes as there are cores, eight at most; in this order, the notebooks first, which are the longest. Their
# solutions are run by tests/test_exercises.py, without kernels.
PYTEST = $(ONE_THREAD) $(PY) -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
	--nbval --ignore notebooks/solutions

# The stamp `ready` holds the folder it was made for. In a folder that was moved, or with another Python, set up again,
# as what was left half made, where `begun` says so. What isn't stamped so isn't ours to empty, whatever its files are
# called. (The shell asks for the folder itself: whatever characters a path has, they must never be read as a command.)
VERSION := '%d.%d' % sys.version_info[:2]
ifdef PYTHON
ASKED := $(shell $(PYTHON) -c "import sys; print($(VERSION))" 2>/dev/null)
$(if $(ASKED),,$(error PYTHON=$(PYTHON) does not run: give the name or path of a Python, 3.11 or newer))
endif
WORDS := make began to set up this folder, and may empty it
STAMP := $(shell if [ "$$(cat $(READY))" = "$$(pwd -P)" ] && \
	$(PY) -c "import sys; sys.exit('$(ASKED)' not in ('', $(VERSION)))"; then echo ready; \
	elif [ "$$(cat $(BEGUN))" = '$(WORDS)' ] || { [ "$$(grep -c ^ $(READY))" = 1 ] && grep -q ^/ $(READY) && \
	[ -f $(VENV)/pyvenv.cfg ] && { [ -e $(PY) ] || [ -L $(PY) ]; }; }; then echo ours; fi 2>/dev/null)

# What libraries write beside the course goes into the environment: the home folder may be read-only, and a reader's own
# start-up files must not change what a notebook prints, nor a model of their own. In JupyterLab the reader's own hold.
export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
ifneq ($(MAKECMDGOALS),lab)
export ANNOTATED_MINE := none
export IPYTHONDIR := $(CURDIR)/$(VENV)/ipython
export JUPYTER_CONFIG_DIR := $(CURDIR)/$(VENV)/jupyter
export JUPYTER_DATA_DIR := $(CURDIR)/$(VENV)/jupyter
export JUPYTER_RUNTIME_DIR := $(CURDIR)/$(VENV)/jupyter/runtime
endif

.DEFAULT_GOAL := help
.PHONY: help env again run test test-all timing lab site check sync notebooks train bench

help:  ## show this list
	@echo "Begin with \`make lab\`: it opens the course in your browser, at the tour."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Add TORCH=2.13.0 to run any of them on that torch, in an environment of its own, or PYTHON=python3.13 to"
	@echo "choose the Python that the environment is made with."

env: $(READY)  ## only set up .venv (every other command does it too, the first time)

run: env  ## execute the notebooks, train briefly on the embedded corpus, translate a few sentences, say what differed
	@$(PASSIVE) $(PY) -m tools.run

# What does not depend on torch, `once` in the tests, is seen on the pinned one.
test: $(if $(TORCH),env,check)  ## run the checks, the tests, and every notebook against its saved outputs
	$(PYTEST) notebooks tests

test-all: check  ## the same, and the long proofs: sections again, all pages, four processes; an hour or more
	$(PYTEST) --all notebooks tests

timing: env  ## test, and list what took longest
	$(PYTEST) --durations=60 notebooks tests

lab: env  ## open your copy of the notebooks in JupyterLab, at the tour; ARGS="--no-browser --port 9999" are passed on
	@mkdir -p $(LAB_SETTINGS)
	@echo '{"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},' \
		'"@jupyterlab/notebook-extension:tracker": {"windowingMode": "defer"},' \
		'"@jupyterlab/htmlviewer-extension:plugin": {"trustByDefault": true},' \
		'"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
		> $(LAB_SETTINGS)/overrides.json
	@$(PY) -m tools.working_copy
	$(PASSIVE) $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/work/start.md \
		--KernelManager.transport_encryption=auto --ServerApp.extra_static_paths=docs \
		$(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

site: env  ## build the course as web pages into build/site, to read anywhere, offline
	$(PY) -m tools.site
	@echo "Open build/site/index.html"

check: env  ## look at format, style, static types and who imports whom, notebooks included
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

sync: env  ## refresh what is made of the module, the address and the chapters' about.toml
	$(PY) -m tools.sync
	$(PY) -m tools.transformer_file

notebooks: sync  ## execute the notebooks in place, to save new outputs
	@for notebook in $(NOTEBOOKS); do \
		echo "Executing $$notebook"; \
		$(ONE_THREAD) $(EXECUTE) --inplace \
			--ExecutePreprocessor.record_timing=False --ExecutePreprocessor.store_widget_state=False \
			"$$notebook" || exit 1; \
	done
	@$(PY) -m nbconvert --to notebook --inplace --log-level WARN --CoalesceStreamsPreprocessor.enabled=True $(NOTEBOOKS)

train: env  ## train German to English on Multi30k, three quarters of an hour
	$(PY) -m annotated train --corpus multi30k --src de --tgt en --schedule linear --average 1 \
		--batch-tokens 4096 --dropout 0.2 --out runs/de-en

bench: env  ## time training beside PyTorch's own model, some minutes
	$(PY) -m experiments.speed

# Without TORCH, requirements.txt as it is. With it, the lines of the newer stack, whatever the Python, and that torch.
# On Linux, PyPI's torch comes with gigabytes of libraries for GPUs. Where no GPU answers, PyTorch's own index is asked for
# its build without them: ten seconds at most, then PyPI's will do. (Elsewhere PyPI's has none.)
$(READY): requirements.txt pyproject.toml $(if $(filter ready,$(STAMP)),,again)
	@python=; for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
		if $$candidate -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			python=$$candidate; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo 'No usable Python found: the course needs Python 3.11 or newer with its venv module. Install it and try again.'; \
		echo '  Debian, Ubuntu   sudo apt install python3 python3-venv   (Ubuntu 22.04: python3.11 python3.11-venv)'; \
		echo '  macOS            brew install python@3.12'; \
		echo '  Windows          in WSL: wsl --install, then as on Ubuntu'; \
		exit 1; \
	fi >&2; \
	if [ -n "$$(ls -A $(VENV) 2>/dev/null)" ] && [ -z "$(STAMP)" ]; then \
		echo '$(VENV) was not made by make, which leaves it as it is. Use it without make (docs/INSTALL.md says how), or'; \
		echo 'rename it, or have another made: add VENV=.venv-course to this and every later command.'; \
		exit 1; \
	fi >&2; \
	echo "Setting up $(VENV) with $$($$python --version): a few minutes and up to 3 GB, or 7 with a GPU, only this once."; \
	mkdir -p $(VENV) && echo '$(WORDS)' > $(BEGUN) && rm -f $@ || exit 1; \
	if [ "$(STAMP)" != ready ]; then \
		find $(VENV)/ -mindepth 1 ! -path $(BEGUN) -delete && \
			$$python -m venv $(VENV) || exit 1; \
	fi
ifdef TORCH
	@sed -e '/python_version < /d' -e 's/;.*//' -e 's/^torch==.*/torch==$(TORCH)/' requirements.txt > $(VENV)/requirements.txt
else
	@cp requirements.txt $(VENV)/requirements.txt
endif
	@if [ "$$(uname -s)" = Linux ] && ! nvidia-smi >/dev/null 2>&1; then \
		grep '^torch=' $(VENV)/requirements.txt > $(VENV)/torch.txt; \
		from="--index-url $(TORCH_INDEX) --retries 0"; \
		timeout 10 $(PY) -m pip index versions torch $$from --timeout 5 2>/dev/null | grep -q +cpu && \
			$(PY) -m pip install --no-deps $$from --timeout 15 -r $(VENV)/torch.txt 2>/dev/null || \
			echo "No torch for CPUs from $(TORCH_INDEX): PyPI's comes, with libraries for GPUs, up to 7 GB in all."; \
	fi
	$(PY) -m pip install -r $(VENV)/requirements.txt
	$(PY) -m pip install --no-deps -e .
	$(PY) -m pip check
	@$(PY) -c 'import matplotlib.font_manager'  # builds the list of fonts, or the first figure would report it
	@pwd -P > $@ && rm -f $(BEGUN)

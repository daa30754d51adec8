# `make demo` and `make test` are all that is needed; both set up .venv at the first time.
PYTHON ?= python3
ARGS ?=
RUN := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo run test test-decide faults api-check e2e screenshots lint bench bench-peers requirements lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: .venv/.ready ## Set everything up and carry one real run through
	@$(RUN) -m examples.refund_desk.demo $(ARGS)

run: .venv/.ready ## Start the services alone: servers, web, one worker (PORT=8000 to choose)
	@AGENTCORE_PORT="$(PORT)" exec $(RUN) -m config.serve $(ARGS)

test: .venv/.ready ## Run the tests (ARGS="tests/agentcore -x" to choose)
	@$(RUN) -m pytest $(ARGS)

faults: .venv/.ready ## Fail at every I/O boundary, for half an hour (ARGS="--trials 300" for less)
	@$(RUN) -m tests.faults.exhaustive $(ARGS)

api-check: .venv/.ready ## Check the API against its OpenAPI document, in about three minutes
	@$(RUN) -m tests.api.check $(ARGS)

e2e: .venv/.ready ## Drive the console's pages with a real Chromium, in about a minute
	@$(RUN) -m pytest tests/e2e $(ARGS)

screenshots: .venv/.ready ## Draw the six main pages anew, light and dark, into docs/images
	@AGENTCORE_SCREENSHOTS=docs/images $(RUN) -m pytest -q tests/e2e/test_screenshots.py $(ARGS)

test-decide: .venv/.ready ## Reply table, any body, 200 models that lie, loop, stall or overspend
	@REPLY_EXAMPLES=200 MODELS_AT_RANDOM=200 $(RUN) -m pytest tests/replies $(ARGS)

lint: .venv/.ready ## Check style, types, layers and migrations
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	.venv/bin/lint-imports
	$(RUN) -W "ignore:Got an error checking a consistent migration history:RuntimeWarning" \
		manage.py makemigrations --check --dry-run

bench: .venv/.ready ## Measure floors, counts and ours, in 12 minutes (ARGS="--help")
	@$(RUN) -m bench $(ARGS)

bench-peers: .venv/.ready ## Compare with other runtimes, installed apart, in 25 minutes (ARGS="--help")
	@$(RUN) -m bench peers $(ARGS)

requirements: .venv/.ready ## Show each requirement with the tests that prove it
	@$(RUN) -m tests.requirements_report $(ARGS)

lock: .venv/.ready ## Make requirements.lock anew (ARGS=--upgrade for newer versions)
	UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1 .venv/bin/uv pip compile pyproject.toml --extra embedded \
		--group dev --group lint --universal --generate-hashes --no-emit-index-url \
		--python-version 3.11 --custom-compile-command "make lock" --quiet \
		-o requirements.lock $(ARGS)

.venv/.ready: requirements.lock config/bootstrap.sh
	@sh config/bootstrap.sh $(PYTHON)

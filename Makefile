# The project's tasks.  `make check` is what a change has to pass; CI runs `make test`.
VENV := .venv/bin

.PHONY: check fmt unit test up down

check: ## static checks and unit tests (seconds)
	./deploy/test --fast

fmt: ## format and sort imports
	$(VENV)/ruff format .
	$(VENV)/ruff check --fix .

unit: ## unit tests only
	$(VENV)/pytest -m "not (e2e or page or peer or sglang or vm or pristine)"

test: ## everything, end to end (root; half an hour on 2 cores)
	./deploy/test

up: ## install and start Inquest with a demonstration server (root)
	./deploy/up

down: ## take it away again (root)
	./deploy/down

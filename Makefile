# The README's two commands: `make demo` and `make test`. Thin: the work is in scripts/.
.PHONY: demo test bootstrap lint coverage bench soak clean

demo: bootstrap
	@.venv/bin/python scripts/demo.py

test: bootstrap
	@scripts/test

bootstrap:
	@scripts/bootstrap

lint: bootstrap
	@scripts/lint

coverage: bootstrap
	@.venv/bin/python -m pytest -n 2 --dist loadfile -q --cov --cov-report=term

bench:
	@scripts/bootstrap fio rsync
	@.venv/bin/python -m benchmarks

# About an hour: the harnesses of the tests at full count, docs/dev/soak.md.
soak: bootstrap
	@.venv/bin/python -m tests.soak

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*

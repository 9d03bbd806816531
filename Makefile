# The README's two commands: `make demo` and `make test`. Thin: the work is in scripts/.
.PHONY: demo test bootstrap test-bootstrap lint coverage bench soak clean

demo: bootstrap
	@.venv/bin/python scripts/demo.py

test: test-bootstrap
	@scripts/test

bootstrap:
	@scripts/bootstrap

# What the tests boot a guest with; the demo needs none of it.
test-bootstrap:
	@scripts/bootstrap qemu-system-x86 qemu-utils busybox-static git
	@scripts/guest-kernel

lint: bootstrap
	@scripts/lint

coverage: test-bootstrap
	@.venv/bin/python -m pytest -n 2 --dist loadfile -q --cov --cov-report=term

bench:
	@scripts/bootstrap fio rsync
	@.venv/bin/python -m benchmarks

# About an hour: the harnesses of the tests at full count, docs/dev/soak.md.
soak: test-bootstrap
	@.venv/bin/python -m tests.soak

clean:
	rm -rf .venv .guest build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*

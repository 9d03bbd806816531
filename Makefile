# The README's two commands: `make demo` and `make test`. Thin: the work is in scripts/.
export PREFIX DESTDIR HELPERDIR PYTHON EXTRAS EFFORT UI
.PHONY: demo test install uninstall bootstrap test-bootstrap lint coverage bench soak interop docs clean

# UI=1 keeps what it made, and a page on it, until Enter.
demo: bootstrap
	@.venv/bin/python -m scripts.demo

# EFFORT=full has more seeds, kills and cases, and is what CI runs: docs/dev/testing.md
test: test-bootstrap
	@scripts/test

# PREFIX=/usr/local DESTDIR= HELPERDIR=/usr/sbin PYTHON=/usr/bin/python3 EXTRAS=; docs/guide/install.md
install:
	@scripts/install

uninstall:
	@scripts/install --remove

bootstrap:
	@scripts/bootstrap

# Both front-ends, and what the tests boot a guest with, look at man pages, units, notices and the page with, and lose
# frames with; the demo needs none of it, not even a compiler.
test-bootstrap:
	@scripts/bootstrap --test qemu-system-x86 qemu-utils busybox-static dosfstools git groff-base systemd nftables chromium \
		fonts-noto-core debootstrap dbus libnotify-bin python3-dbusmock
	@scripts/guest-kernel
	@scripts/sshd
	@scripts/swift install

lint:
	@scripts/bootstrap --test
	@scripts/lint

coverage: test-bootstrap
	@.venv/bin/python -m pytest -n 2 --dist loadfile -q --cov --cov-report=term

bench:
	@scripts/bootstrap --test fio rsync rclone restic borgbackup syncthing unison nftables debootstrap
	@.venv/bin/pip install --quiet --constraint scripts/constraints.txt 'matplotlib>=3.9'
	@.venv/bin/python -m benchmarks

# Two hours: the harnesses of the tests at full count, docs/dev/soak.md.
soak: test-bootstrap
	@.venv/bin/python -m tests.soak

# The clients of others against our server: kamaki 0.16 under Python 2.7, swift, openstacksdk, rclone. Needs the package mirror and pip's index.
interop:
	@scripts/bootstrap --test rclone curl gpgv debian-archive-keyring
	@.venv/bin/python -m tests.interop

# The documentation site, build/site/index.html: docs/ as it is, and the pages beside it. Ends with an error if a link leads nowhere.
docs: bootstrap
	@scripts/site/build

clean:
	rm -rf .venv .pycache .guest .interop .swift build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*

# Chores of the house, each one command from a fresh clone. `make help` lists them.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOWPATH := $(TARGET)/release/towpath
# How long each fuzz target runs under `make fuzz`.
FUZZ_SECONDS ?= 60
# A toolchain that has Miri (`rustup component add miri --toolchain nightly`), for `make miri`.
MIRI_TOOLCHAIN ?= nightly
# How many random programs `make test-aarch64` generates.
AARCH64_PROGRAMS ?= 100

.PHONY: help demo test test-aarch64 bench guest-agent wheel check-wheel lint fuzz miri loom sanitize parity chaos churn troubles ike docs binary release semver libraries \
	install uninstall deb check-install check-container programs programs-all clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: binary programs ## a firewall and a load balancer over a capture, and how fast they are
	@scripts/demo.sh $(TOWPATH)

test: programs-all ## all tests; those that need root or the running kernel skip themselves
	@$(CARGO) test --workspace --quiet

# Its own folder: nothing is shared with the other machine's code but the sources.
test-aarch64: export CARGO_TARGET_DIR := $(TARGET)/aarch64
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := aarch64-linux-gnu-gcc
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER := \
	qemu-aarch64 -L /usr/aarch64-linux-gnu
test-aarch64: ARM := --target aarch64-unknown-linux-gnu --config profile.dev.debug=false \
	--config profile.dev.opt-level=1
test-aarch64: ## all that is released compiled, the compiler's tests and tier 1 beside the interpreter, on an emulated aarch64
	@scripts/install-deps.sh aarch64
	@$(CARGO) check $(ARM) --quiet -p towpath-cli -p towpath-capi -p towpath-xsk-capi -p towpath-udp-capi \
		-p towpath-guest-client
	@$(CARGO) test $(ARM) --quiet -p towpath-jit
	@$(CARGO) run $(ARM) --quiet -p towpath-tests -- isa --against interp --exec jit
	@$(CARGO) run $(ARM) --quiet -p towpath-tests -- \
		random --against interp --exec jit --programs $(AARCH64_PROGRAMS)

bench: binary programs ## time programs beside the kernel (root; else the interpreter), and hash tables
	@$(TOWPATH) bench --against $(if $(filter 0,$(shell id -u)),kernel,interp)
	@$(CARGO) run --release --quiet -p towpath-maps --example hash_bars

guest-agent: ## towpath-guest, the command for virtual machines: one static file, into build/guest
	@scripts/build-guest-agent.sh build/guest --release

wheel: ## the Python package with the command, for glibc 2.28 and later, into build/wheels
	@scripts/build-wheel.sh

check-wheel: wheel ## install the wheel into a fresh environment, and do what a new user does
	@scripts/check-wheel.sh "$$(ls -t build/wheels/towpath-*_$$(uname -m).whl | head -n 1)"

lint: ## formatting, clippy, documentation, licences of dependencies
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	@scripts/check-licences.py

fuzz: ## every fuzz target for FUZZ_SECONDS
	@BOLERO_RANDOM_TEST_TIME_MS=$$(($(FUZZ_SECONDS) * 1000)) \
		$(CARGO) test --release -p towpath-fuzz -- --test-threads=1 --nocapture
	@BOLERO_RANDOM_TEST_TIME_MS=$$(($(FUZZ_SECONDS) * 1000)) \
		$(CARGO) test --release -p towpath-cli --bin towpath -- --nocapture \
		cases::file::tests::whatever_is_in_a_file_is_read_or_refused

miri: export CARGO_TARGET_DIR := $(abspath $(TARGET))/miri
miri: ## raw access to memory that others write, under Miri (a nightly toolchain)
	@cd tests/miri && $(CARGO) +$(MIRI_TOOLCHAIN) miri test --quiet

loom: export CARGO_TARGET_DIR := $(abspath $(TARGET))/loom
loom: export RUSTFLAGS := --cfg loom
loom: ## protocols between threads, in every interleaving that the memory model allows
	@$(CARGO) test --release --quiet -p towpath-ring --lib
	@$(CARGO) test --release --quiet -p towpath-ring --test model
	@$(CARGO) test --release --quiet -p towpath-maps --lib model

sanitize: ## what threads, applications and guests share, under Address- and ThreadSanitizer (nightly)
	@scripts/sanitize.sh

# Of the long comparisons, without the five programs of a hundred that take nine tenths of the time.
parity: SOON := --verified-max 10000
parity: ## compare with the running kernel (root): tables, objects, packets, random programs
	@scripts/install-deps.sh parity
	@$(CARGO) build --release --quiet -p towpath-tests
	@$(TARGET)/release/parity tables
	@$(TARGET)/release/parity isa --exec jit,llvm
	@$(TARGET)/release/parity printed --exec jit,llvm
	@$(TARGET)/release/parity objects --exec interp,jit,llvm
	@$(TARGET)/release/parity random --programs 5000
	@$(TARGET)/release/parity random --programs 125000 --exec jit,llvm $(SOON)
	@$(TARGET)/release/parity random --programs 100000 --exec jit --against interp --scramble $(SOON)
	@$(TARGET)/release/parity random --programs 20000 --exec jit,llvm --against interp --checked $(SOON)
	@$(TARGET)/release/parity passes --programs 10000 --exec jit --against interp $(SOON)
	@$(TARGET)/release/parity hostile --programs 10000000
	@$(TARGET)/release/parity speed

chaos: CHAOS_STEPS ?= 10000
chaos: ## faults and changes at random under traffic (root): CHAOS_STEPS of them
	@CHAOS_STEPS=$(CHAOS_STEPS) $(CARGO) test -p towpath-cli --test chaos

churn: CHURN_SECONDS ?= 300
churn: ## mutated packets at an accelerator while SAs come and go: CHURN_SECONDS with each of two engines
	@TOWPATH_CHURN_SECONDS=$(CHURN_SECONDS) $(CARGO) test -p towpath-tests --test accelerator \
		-- --test-threads=1 --nocapture

troubles: ## UDP sockets on ports of every kind, while all kinds of events happen (root)
	@TOWPATH_UDP_ALL=1 $(CARGO) test -p towpath-tests --test udp trouble \
		-- --test-threads=1 --nocapture

ike: binary programs ## strongSwan with Towpath as its data plane, for some ten minutes (root)
	@scripts/install-deps.sh test
	@tests/ike/run.py --result tests/results/ike.md $(TOWPATH) build/programs/esp_gateway.o

binary: ## build the `towpath` binary
	@scripts/install-deps.sh demo
	@$(CARGO) build --release -p towpath-cli

release: ## make a release of HEAD in dist/: wheels, tarballs, Debian packages, checksums
	@scripts/release.sh x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu

semver: ## name what the crate towpath has taken back since BASE, or the newest tag
	@scripts/semver.sh $(BASE)

libraries: ## build the C libraries: libtowpath, and the AF_XDP sockets' client
	@$(CARGO) build --release -p towpath-capi -p towpath-xsk-capi -p towpath-udp-capi

install: binary libraries guest-agent ## install into PREFIX (/usr/local), below DESTDIR if it is set
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh $(TARGET)/release

uninstall: ## remove what `make install` installed, but for the configuration
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh --uninstall

deb: binary libraries guest-agent ## make Debian packages in build/deb: towpath, its debug symbols, towpath-guest
	@scripts/make-deb.sh $(TARGET)/release

check-install: binary libraries guest-agent ## install into a folder of its own, use it, remove it; look at the packages
	@scripts/check-install.sh $(TARGET)/release

check-container: ## build the image of the Containerfile with buildah (root), and use it
	@scripts/check-container.sh

programs: ## compile programs/*.c into build/programs, bench/prices and bench/scale likewise
	@scripts/install-deps.sh demo
	@scripts/build-programs.sh
	@scripts/build-programs.sh --from bench/prices --out build/prices
	@scripts/build-programs.sh --from bench/scale --out build/scale

programs-all: ## the same with clang 14 and clang 19, into build/clang-14* and build/clang-19*
	@scripts/install-deps.sh test
	@for clang in clang-14 clang-19; do \
		if command -v $$clang >/dev/null; then \
			scripts/build-programs.sh --clang $$clang --out build/$$clang && \
			for from in prices scale; do \
				scripts/build-programs.sh --clang $$clang --from bench/$$from \
					--out build/$$clang-$$from || exit 1; \
			done || exit 1; \
		fi; \
	done

clean: ## remove everything that was built
	@$(CARGO) clean --quiet
	@rm -rf build

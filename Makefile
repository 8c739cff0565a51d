# What `make help` prints is below. Everything is built under build/; nothing finished is done twice.

MODEL ?= smollm2:135m
PROMPT ?=
PREFIX ?= /usr/local
DESTDIR ?=
# Where models are kept; tests that need one look there.
CACHE := $(or $(OUTRIDER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outrider)
# Catalogue models that tests use.
TEST_MODELS := smollm2:135m gemma3:270m qwen2.5-coder:0.5b qwen2.5-coder:1.5b

JOBS = $(shell scripts/jobs)
OUTRIDER := build/release/outrider
# Of `make test`; `make check` has others, so that a warning ends its builds and no user's.
BUILD := build
OPTIONS :=

.DEFAULT_GOAL := help
.PHONY: help build demo test check test-arm64 soak golden prove-install install clean
.PHONY: compile-alone test-models test-sanitizers

help:
	@echo 'make build          build $(OUTRIDER), installing Debian packages that are missing'
	@echo 'make demo           answer a prompt without and with speculation, and compare'
	@echo "                    PROMPT='…'    another prompt"
	@echo '                    MODEL=…       another model: a name of `outrider list --all`, or a .gguf file'
	@echo 'make test           build and run all tests, some of them under sanitizers'
	@echo 'make check          test with warnings as errors, and look at layout and includes, as for a change'
	@echo 'make test-arm64     build everything for arm64 and run unit tests under qemu'
	@echo 'make soak           the long tests: whole matrices, long fuzzing'
	@echo 'make golden         make the golden files of tests again (20 GB, PyTorch among it, under build/golden)'
	@echo 'make prove-install  run demo and test in a bare Debian 12 (needs root and mmdebstrap)'
	@echo 'make install        install program, manual page and completions under PREFIX=$(PREFIX)'
	@echo 'make clean          remove build/; models stay'

# $(call configure,PRESET,FOLDER): runs cmake unless FOLDER was configured from this preset as it stands. Everything else
# that cmake reads it watches itself.
configure = cmp -s CMakePresets.json $(2)/$(1).json || \
  { cmake --preset $(1) -B $(2) $(OPTIONS) && cp CMakePresets.json $(2)/$(1).json; }

build:
	@scripts/install-packages build
	@if [ ! -e build/release/release-tests.json ]; then $(call configure,release,build/release); fi
	@cmake --build build/release --target outrider manual -j $(JOBS)

demo: build
	@if [ -n "$$PROMPT" ]; then set -- --prompt "$$PROMPT"; else set -- --file assets/demo.txt; fi; \
	  $(OUTRIDER) prove --model '$(MODEL)' --temp 0 --predict 256 "$$@"
demo: override export PROMPT := $(value PROMPT)

# One ctest over all builds, so that one line closes it. The timeout, many times what any test takes, names a test
# that hangs.
test:
	@scripts/install-packages build test
	@$(call configure,release-tests,$(BUILD)/release)
	@cmake --build $(BUILD)/release -j $(JOBS)
	@$(MAKE) --no-print-directory -j 2 test-models test-sanitizers
	@echo 'subdirs(release asan tsan)' >$(BUILD)/CTestTestfile.cmake
	@OUTRIDER_CACHE='$(CACHE)' ctest --test-dir $(BUILD) --output-on-failure --no-tests=error --timeout 900 -j $(JOBS)

# At the same time: one waits for the network, the other computes.
test-models:
	@OUTRIDER_CACHE='$(CACHE)' $(BUILD)/release/outrider pull $(TEST_MODELS)
test-sanitizers:
	@$(call configure,asan,$(BUILD)/asan)
	@cmake --build $(BUILD)/asan -j $(JOBS)
	@$(call configure,tsan,$(BUILD)/tsan)
	@cmake --build $(BUILD)/tsan -j $(JOBS)

# First what takes least.
check: override IN := BUILD=build/check OPTIONS=-DOUTRIDER_WERROR=ON
check:
	@scripts/install-packages build test check
	@scripts/check-format
	@$(MAKE) --no-print-directory compile-alone $(IN)
	@$(MAKE) --no-print-directory test $(IN)
compile-alone:
	@$(call configure,release-tests,$(BUILD)/release)
	@scripts/compile-alone $(BUILD)/release

# The folders whose tests run no kernel, so that qemu's speed does: minutes. Models are not looked for.
# Without the simulation of the planner, which takes more than a quarter of an hour under qemu.
test-arm64:
	@scripts/install-packages build arm64
	@scripts/arm64-sysroot build/arm64/sysroot
	@$(call configure,arm64,build/arm64)
	@cmake --build build/arm64 -j $(JOBS)
	@ctest --test-dir build/arm64 -R '^(base|numerics|cache|sampling|speculation)\.' -E PlannerSimulation --output-on-failure --no-tests=error \
	  --timeout 900 -j $(JOBS)

soak: test
	@OUTRIDER_CACHE='$(CACHE)' scripts/soak

golden: build
	@OUTRIDER_CACHE='$(CACHE)' $(OUTRIDER) pull $(TEST_MODELS)
	@OUTRIDER_CACHE='$(CACHE)' scripts/golden/make build/golden

prove-install:
	@scripts/prove-install

install: build
	@cmake --install build/release --prefix '$(PREFIX)'

clean:
	rm -rf build

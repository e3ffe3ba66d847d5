# Mist. `make help` lists the targets; V=1 shows the commands.

PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CFLAGS  ?= -O2 -g
VERSION := 0.1.0
DATE    := 2026-11-23

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2))

# The one list of Debian packages: what builds, runs and tests Mist on a bare Debian 12.
PACKAGES_BUILD := gcc make pkg-config libc6-dev libcsv-dev libjansson-dev zlib1g-dev libglpk-dev libdnnl-dev \
                  libopenmpi-dev
PACKAGES_RUN   := openmpi-bin gnuplot-nox fonts-dejavu-core
PACKAGES_TEST  := g++ libcmocka-dev perl locales
PACKAGES       := $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
# Only for `make test`, `make lint`, `make format`, `make fuzz` and `make sanitize`.
LINT_PACKAGES := clang-14 libclang-rt-14-dev libomp-14-dev clang-format-14 clang-tidy-14 cppcheck shellcheck \
                 mandoc zsh fish
# Only for `make deb`.
PACKAGES_DEB := dpkg-dev

# ---------------------------------------------------------------------------------- flags
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wformat=2 $(if $(CI),-Werror)
# Contraction off: one result whatever the compiler and the optimisation level.
STD  := -std=c17 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -fopenmp-simd -pthread
ALL_CFLAGS = $(STD) $(WARN) $(CFLAGS) -I. -DMIST_VERSION='"$(VERSION)"' -DMIST_DATE='"$(DATE)"' -MMD -MP

MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null | sed 's/-I/-isystem /g')
MPI_LIBS   := $(shell pkg-config --libs ompi-c 2>/dev/null)
ifneq ($(filter all install,$(or $(MAKECMDGOALS),all)),)
$(if $(MPI_LIBS),,$(info make: pkg-config finds no Open MPI; "make deps" installs what is missing))
endif
LIBS_CORE  := -ljansson -lcsv -lz -lm
LIBS_TUNE  := -lglpk
LIBS_EXEC  := -ldnnl $(MPI_LIBS) -fopenmp

# -------------------------------------------------------------------------------- sources
# Every folder with its rooms is one library; foo/mist_<tool>.c is the main file of a tool and not
# in it, nor is exec/cuda, which is a plugin.
lib_sources = $(filter-out $(wildcard $(1)/mist_*.c) exec/cuda/%,$(wildcard $(1)/*.c $(1)/*/*.c))
objects     = $(patsubst %.c,$(BUILD)/%.o,$(1))
library     = $(BUILD)/libmist_$(1).a

FOLDERS := core traces sim tune exec profile plots
LIBS    := $(foreach f,$(FOLDERS),$(if $(call lib_sources,$(f)),$(call library,$(f))))
TOOLS   := $(foreach f,$(FOLDERS),$(patsubst $(f)/mist_%.c,$(BUILD)/mist-%,$(wildcard $(f)/mist_*.c)))
UNIT_TESTS  := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/prop/test_*.c))
BENCHES     := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))

NVCC := $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)

all: $(TOOLS) ## build every tool, and the CUDA plugin where CUDA is
	@:

$(BUILD)/exec/%.o $(BUILD)/profile/%.o: ALL_CFLAGS += $(MPI_CFLAGS) -fopenmp
# sqrt() that may set errno keeps loops scalar
$(BUILD)/exec/operators/cpu_%.o: ALL_CFLAGS += -fno-math-errno
$(BUILD)/sim/symbolic/tape_eval.o $(BUILD)/sim/closed_form/stage_model.o: CFLAGS += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

define library_rule
$(call library,$(1)): $(call objects,$(call lib_sources,$(1)))
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(if $(call lib_sources,$(f)),$(eval $(call library_rule,$(f)))))

# What each library's users must link, mirroring the arrows of the README.
uses_core    := core
uses_traces  := traces core
uses_sim     := sim traces core
uses_tune    := tune sim traces core
uses_exec    := exec sim traces core
uses_profile := profile exec sim traces core
uses_plots   := plots traces core
libs_of = $(foreach f,$(uses_$(1)),$(if $(call lib_sources,$(f)),$(call library,$(f))))
extra_of = $(if $(filter tune,$(uses_$(1))),$(LIBS_TUNE)) $(if $(filter exec,$(uses_$(1))),$(LIBS_EXEC))

define tool_rule
$(BUILD)/mist-$(2): $(BUILD)/$(1)/mist_$(2).o $(call libs_of,$(1))
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) -pthread $$^ -o $$@ $(call extra_of,$(1)) $$(LIBS_CORE)
endef
$(foreach f,$(FOLDERS),$(foreach t,$(patsubst $(f)/mist_%.c,%,$(wildcard $(f)/mist_*.c)),$(eval $(call tool_rule,$(f),$(t)))))

include exec/cuda/cuda.mk
include tests/gpu/gpu.mk
include tests/fuzz/fuzz.mk
include tests/faults/faults.mk

# Embedded files (core/embed.h).
$(BUILD)/plots/scripts.o: $(wildcard plots/*.gp)
$(BUILD)/core/options_man.o: core/manual/words.man
$(BUILD)/sim/sim_options.o: sim/mist_sim.man
$(BUILD)/tune/tune_options.o: tune/mist_tune.man
$(BUILD)/exec/train/train_options.o: exec/mist_exec.man
$(BUILD)/profile/mist_profile.o: profile/mist_profile.man
$(BUILD)/plots/mist_plot.o: plots/mist_plot.man

# ---------------------------------------------------------------------------------- tests
# A unit test may look at every library; WRAP lists libc calls that fault loops make fail.
TEST_LIBS := $(foreach f,profile exec tune plots sim traces core,$(if $(call lib_sources,$(f)),$(call library,$(f)))) \
             $(CUDA_EMULATED)
$(BUILD)/tests/%.o: ALL_CFLAGS += $(MPI_CFLAGS) -fopenmp
$(BUILD)/tests/unit/% $(BUILD)/tests/prop/%: $(BUILD)/tests/unit/%.o $(TEST_LIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $< $(filter $(BUILD)/counted/%,$^) $(WRAP) -o $@ -Wl,--start-group $(TEST_LIBS) -Wl,--end-group \
	    -lcmocka $(LIBS_TUNE) $(LIBS_EXEC) $(LIBS_CORE) -ldl

$(BUILD)/tests/unit/test_comm_window: WRAP := -Wl,--wrap=memfd_create,--wrap=ftruncate,--wrap=open,--wrap=mmap

# SimGrid is no dependency: one benchmark is linked with it where it is installed.
ifneq ($(wildcard /usr/include/simgrid/s4u.hpp),)
$(BUILD)/tests/bench/simgrid_job.o: tests/bench/simgrid_job.cpp tests/bench/simgrid_job.h
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra $(CFLAGS) -I. -c $< -o $@
$(BUILD)/tests/bench/bench_simgrid.o: ALL_CFLAGS += -DMIST_HAS_SIMGRID
$(BUILD)/tests/bench/bench_simgrid: WRAP := $(BUILD)/tests/bench/simgrid_job.o -lsimgrid -lstdc++
$(BUILD)/tests/bench/bench_simgrid: $(BUILD)/tests/bench/simgrid_job.o
endif

# Work that must not grow faster than the input: every branch of these calls a counter of the test.
COUNTED := $(patsubst %.c,$(BUILD)/counted/%.o,core/csv.c core/memory.c core/parse.c $(wildcard traces/*.c) \
             $(wildcard sim/cost/*.c) plots/plot_tables.c)
$(BUILD)/counted/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize-coverage=trace-pc -c $< -o $@
$(BUILD)/tests/unit/test_trace_work: $(COUNTED)

TESTS := $(UNIT_TESTS) $(CUDA_TESTS) $(wildcard tests/cli/*.t)
# One runner for all: unit tests speak TAP through cmocka, command-line tests by themselves. Two more
# at once than there are processors, since many wait for disks and for each other; those that take
# longest first, so that none is left over alone.
JOBS ?= $(shell expr $$(nproc) + 2)
jobs = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))
LONG_TESTS := prop/test_cuda_training cli/slow_faults.t prop/test_monotone prop/test_training_near prop/test_training_same \
    cli/slow_gpu_calls.t cli/slow_profile.t cli/slow_kill.t cli/verify.t cli/requeue.t prop/test_training_random \
    cli/tune.t cli/readme.t cli/checkpoint.t cli/probe.t cli/train.t unit/test_state unit/test_checkpoint \
    unit/test_train_folder prop/test_resume prop/test_training_tool unit/test_cuda_attention_plans \
    unit/test_cuda_complete cli/locale.t cli/signals.t unit/test_cuda_elementwise unit/test_comm_failures \
    unit/test_process unit/test_cuda_norm unit/test_cuda_operators unit/test_runtime_graph prop/test_stage_model
long_first = $(foreach l,$(LONG_TESTS),$(filter %/$(l),$(1))) $(filter-out $(addprefix %/,$(LONG_TESTS)),$(1))
run_tests = $(test_environment) MIST_BUILD=$(abspath $(BUILD)) prove $(if $(V),-v) $(PROVE_FLAGS) -j$(JOBS) --exec tests/tap.sh $(call long_first,$(1))

.PHONY: tests-build tests-check tests-all tests-all-build tests-all-run predictions benches
tests-build: $(UNIT_TESTS) $(CUDA_TESTS) $(BENCHES)
tests-check: $(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS)
	$(Q)$(call run_tests,$(filter-out $(wildcard tests/cli/slow_*.t),$(TESTS)))
tests-all-build: all tests-build
tests-all-run:
	$(Q)$(call run_tests,$(TESTS))
# The parts of `make test`, one after the other: each keeps all processors busy by itself.
stage = $(Q)tests/stage.sh '$(1)' $(MAKE) --no-print-directory $(jobs)
tests-all:
	$(call stage,build) tests-all-build
	$(call stage,tests) tests-all-run
	$(call stage,predictions) predictions
	$(call stage,one result) identical-run
	$(call stage,lint) lint-checks
	$(call stage,addresses and undefined behaviour) sanitize-address MIST_BRIEF=13
	$(call stage,data races) sanitize-threads MIST_BRIEF=13
	$(call stage,fuzzing) fuzz
predictions: $(TOOLS)
	$(Q)MIST_BUILD=$(abspath $(BUILD)) tests/predictions.sh
benches: $(TOOLS) $(BENCHES)
	$(Q)for b in $(BENCHES) $(wildcard tests/bench/*.sh); do echo "== $$b"; MIST_BUILD=$(abspath $(BUILD)) $$b || exit 1; done

include tests/sanitize/sanitize.mk

# The targets that people call do their own set-up, then start over: what pkg-config says
# is only right once the packages are there.
check: deps ## the fast tests
	$(Q)$(MAKE) --no-print-directory $(jobs) tests-check
test: deps deps-lint ## everything: tests, one result of all compilers, lint, sanitizers, fuzzing
	$(Q)$(MAKE) --no-print-directory tests-all
bench: deps ## benchmarks; they print ratios and never fail on time
	$(Q)$(MAKE) --no-print-directory benches
accuracy: deps ## predict runs that others published, as one table (REFERENCE: a folder of their tables)
	$(Q)$(MAKE) --no-print-directory $(jobs) $(BUILD)/mist-sim
	$(Q)MIST_BUILD=$(abspath $(BUILD)) tests/published.sh $(REFERENCE)
published-page: deps ## predict well-known runs from presets, drawn as plots/published.png
	$(Q)$(MAKE) --no-print-directory $(jobs) $(BUILD)/mist-sim $(BUILD)/mist-plot
	$(Q)MIST_BUILD=$(abspath $(BUILD)) tests/published.sh '' '' $(BUILD)/published.csv
	$(Q)$(BUILD)/mist-plot errors $(BUILD)/published.csv --force -o plots/published.png \
	    --title 'Published runs, predicted from presets and framework profiles alone'
mutants: deps ## which small mistakes the tests notice (MUTANTS: names of some)
	$(Q)MIST_BUILD=$(BUILD) nice -n 19 tests/mutants/run $(MUTANTS)
demo: deps ## profile this machine, tune, simulate, train, compare, plot (into ./demo)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)MIST_BUILD=$(abspath $(BUILD)) tests/demo.sh demo

# ---------------------------------------------------------------------------------- set-up
missing = $(shell for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | \
            grep -q 'install ok installed' || echo $$p; done)
define install_packages
	@if ! command -v dpkg-query >/dev/null; then \
	    echo "make: not a Debian system; install what these packages hold: $(1)"; exit 0; fi; \
	missing="$(strip $(call missing,$(1)))"; \
	[ -z "$$missing" ] && exit 0; \
	install="apt-get install -y --no-install-recommends $$missing"; \
	if [ "$$(id -u)" = 0 ]; then sudo=; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo; \
	else echo "make: packages are missing; run this as root, then make again:"; \
	    echo "    apt-get update && $$install"; exit 1; fi; \
	echo "make: installing $$missing"; \
	$$sudo apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive $$sudo $$install -q >/dev/null
endef
deps: ## install the Debian packages that are missing (as root or with sudo)
	$(call install_packages,$(PACKAGES))

deps-lint:
	$(call install_packages,$(PACKAGES) $(LINT_PACKAGES))

# ---------------------------------------------------------------------------------- upkeep
SOURCES = $(wildcard $(foreach f,$(FOLDERS) sim/* exec/* tests/unit tests/prop tests/bench tests/emulation tests/gpu tests/fuzz tests/faults tests/sanitize,$(f)/*.[ch]))
format: ## reformat every source file
	$(call install_packages,$(LINT_PACKAGES))
	$(Q)clang-format-14 -i $(SOURCES)
lint: deps-lint ## formatting, a second compiler, and three programs that look for mistakes
	$(Q)$(MAKE) --no-print-directory $(jobs) lint-checks
include tests/lint.mk
include tests/coverage.mk
include tests/identical.mk
include .package/package.mk
clean: ## remove what was built
	$(Q)rm -rf $(BUILD)
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/' | expand -t 12

.PHONY: all deps deps-lint check test bench accuracy published-page mutants lint lint-checks format demo clean help
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

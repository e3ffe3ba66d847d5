# Mist. `make help` lists the targets; V=1 shows the commands.

PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CFLAGS  ?= -O2 -g
VERSION := 0.1.0

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2))

# The one list of Debian packages: what builds, runs and tests Mist on a bare Debian 12.
PACKAGES := gcc make pkg-config libc6-dev libcsv-dev libjansson-dev libglpk-dev libdnnl-dev \
            libopenmpi-dev openmpi-bin gnuplot-nox fonts-dejavu-core libcmocka-dev perl
# Only for `make lint` and `make format`.
LINT_PACKAGES := clang-14 clang-format-14 cppcheck

# ---------------------------------------------------------------------------------- flags
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wformat=2 $(if $(CI),-Werror)
# Contraction off: one result whatever the compiler and the optimisation level.
STD  := -std=c17 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -fopenmp-simd -pthread
ALL_CFLAGS = $(STD) $(WARN) $(CFLAGS) -I. -DMIST_VERSION='"$(VERSION)"' -MMD -MP

MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null | sed 's/-I/-isystem /g')
MPI_LIBS   := $(shell pkg-config --libs ompi-c 2>/dev/null)
LIBS_CORE  := -ljansson -lcsv -lm
LIBS_TUNE  := -lglpk
LIBS_EXEC  := -ldnnl $(MPI_LIBS) -fopenmp

# -------------------------------------------------------------------------------- sources
# Every folder is one library; foo/mist_<tool>.c is the main file of a tool and not in it.
lib_sources = $(filter-out $(wildcard $(1)/mist_*.c),$(wildcard $(1)/*.c))
objects     = $(patsubst %.c,$(BUILD)/%.o,$(1))
library     = $(BUILD)/libmist_$(1).a

FOLDERS := core traces sim tune exec profile plots
LIBS    := $(foreach f,$(FOLDERS),$(if $(call lib_sources,$(f)),$(call library,$(f))))
TOOLS   := $(foreach f,$(FOLDERS),$(patsubst $(f)/mist_%.c,$(BUILD)/mist-%,$(wildcard $(f)/mist_*.c)))
UNIT_TESTS  := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/prop/test_*.c))
BENCHES     := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))

all: $(TOOLS) ## build every tool

$(BUILD)/exec/%.o $(BUILD)/profile/%.o: ALL_CFLAGS += $(MPI_CFLAGS) -fopenmp
$(BUILD)/exec/kernels_cpu/%.o $(BUILD)/sim/tape_eval.o: CFLAGS += -O3

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

# ---------------------------------------------------------------------------------- tests
# A unit test may look at every library; WRAP lists libc calls that fault loops make fail.
TEST_LIBS := $(foreach f,profile exec tune plots sim traces core,$(if $(call lib_sources,$(f)),$(call library,$(f))))
$(BUILD)/tests/%.o: ALL_CFLAGS += $(MPI_CFLAGS) -fopenmp
$(BUILD)/tests/unit/% $(BUILD)/tests/prop/%: $(BUILD)/tests/unit/%.o $(TEST_LIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $< $(WRAP) -o $@ -Wl,--start-group $(TEST_LIBS) -Wl,--end-group \
	    -lcmocka $(LIBS_TUNE) $(LIBS_EXEC) $(LIBS_CORE)

.PHONY: all deps check test bench lint format install uninstall demo clean help soak
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# Fuzzing of every reader. Included by the Makefile behind its pattern rules.
#
# Each tests/fuzz/fuzz_<target>.c is linked twice: with replay.c to an ordinary test, which
# needs no fuzzer, and with libFuzzer for `make fuzz` and `make soak`. The fuzzer's objects
# are the readers alone, with sanitizers and coverage, under $(BUILD)/fuzz.

FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
ifeq ($(CUDA_HEADERS),)
FUZZ_SOURCES := $(filter-out tests/fuzz/fuzz_gemm.c,$(FUZZ_SOURCES))
endif
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_SOURCES))

# Checksums that the fuzzer cannot guess: a target may leave them out. Files that are mapped
# become copies on the heap, where the sanitizer sees their ends.
FUZZ_WRAP_MMAP        := -Wl,--wrap=mmap,--wrap=munmap
FUZZ_WRAP_safetensors := $(FUZZ_WRAP_MMAP)
FUZZ_WRAP_tensors     := $(FUZZ_WRAP_MMAP)
FUZZ_WRAP_hf          := $(FUZZ_WRAP_MMAP)
FUZZ_WRAP_checkpoint  := $(FUZZ_WRAP_MMAP) -Wl,--wrap=mist_checkpoint_sum
FUZZ_WRAP_layout      := $(FUZZ_WRAP_checkpoint)
FUZZ_WRAP_journal     := -Wl,--wrap=mist_hash_add_bytes

# ---------------------------------------------------------------------- as ordinary tests
FUZZ_TESTS := $(addprefix $(BUILD)/tests/fuzz/,$(FUZZ_TARGETS))
UNIT_TESTS += $(FUZZ_TESTS)

$(BUILD)/tests/fuzz/%.o: ALL_CFLAGS += $(CUDA_CFLAGS)
$(FUZZ_TARGETS:%=$(BUILD)/tests/fuzz/replay_%.o): $(BUILD)/tests/fuzz/replay_%.o: tests/fuzz/replay.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -DFUZZ_TARGET='"$*"' -c $< -o $@
$(FUZZ_TESTS): $(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay_%.o \
               $(BUILD)/tests/fuzz/fuzz.o $(LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $(FUZZ_WRAP_$*) $(filter %.o,$^) -o $@ \
	    -Wl,--start-group $(LIBS) -Wl,--end-group $(LIBS_CORE)
$(BUILD)/tests/fuzz/gemm: $(if $(CUDA_HEADERS),$(BUILD)/pic/exec/cuda/gemm_file.o)

# ------------------------------------------------------------------------ with libFuzzer
FUZZ_CC ?= clang-14
FUZZ_SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_CFLAGS = $(STD) $(WARN) -O1 -g1 -fno-omit-frame-pointer $(FUZZ_SANITIZE) $(CUDA_CFLAGS) \
              -I. -DMIST_VERSION='"$(VERSION)"' -MMD -MP
FUZZ_READERS := $(wildcard core/*.c) $(filter-out $(wildcard traces/mist_*.c),$(wildcard traces/*.c)) \
                $(wildcard sim/*/*.c) sim/what_if.c \
                $(wildcard exec/huggingface/*.c exec/checkpoint/*.c exec/data/*.c exec/train/log_file.c) \
                $(filter-out plots/mist_plot.c,$(wildcard plots/*.c)) profile/journal.c \
                $(wildcard profile/import_torch.c profile/torch_*.c) \
                $(if $(CUDA_HEADERS),exec/cuda/gemm_file.c)
FUZZERS := $(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS))

$(BUILD)/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(call say,FUZZ-CC,$<)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -c $< -o $@
$(BUILD)/fuzz/plots/scripts.o: $(wildcard plots/*.gp)
$(BUILD)/fuzz/libreaders.a: $(patsubst %.c,$(BUILD)/fuzz/%.o,$(FUZZ_READERS)) tests/fuzz/fuzz.mk
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)
$(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/fuzz/tests/fuzz/fuzz_%.o $(BUILD)/fuzz/tests/fuzz/fuzz.o \
            $(BUILD)/fuzz/libreaders.a
	$(call say,LINK,$@)
	$(Q)$(FUZZ_CC) $(FUZZ_SANITIZE) -fsanitize=fuzzer -pthread $(FUZZ_WRAP_$*) $^ -o $@ $(LIBS_CORE)

# Nothing is installed here: where the compiler is missing the targets say so and succeed.
FUZZ_WORKS = $(shell printf 'int LLVMFuzzerTestOneInput(const char *b, unsigned long n);\n\
int LLVMFuzzerTestOneInput(const char *b, unsigned long n) { return b && n > 9 ? 0 : 0; }\n' | \
    $(FUZZ_CC) -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null && echo yes)
fuzz_jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j2)
fuzz_run = $(if $(FUZZ_WORKS),$(MAKE) --no-print-directory $(fuzz_jobs) fuzzers && tests/fuzz/run.sh $(1),\
    echo 'fuzz: skipped: $(FUZZ_CC) with libFuzzer is not installed (Debian: clang-14, libclang-rt-14-dev)')

# Seconds of each target. SOAK_S=3600 make soak
FUZZ_S ?= 20
SOAK_S ?= 600
fuzz: ## every reader under the fuzzer, 20 s each (FUZZ_S)
	$(Q)$(call fuzz_run,$(BUILD)/fuzz $(FUZZ_S) fixed $(FUZZ_TARGETS))
soak: ## the same for 10 minutes each (SOAK_S), going on from the last time
	$(Q)$(call fuzz_run,$(BUILD)/fuzz $(SOAK_S) grow $(FUZZ_TARGETS))
fuzzers: $(FUZZERS)
	@:
.PHONY: fuzz soak fuzzers

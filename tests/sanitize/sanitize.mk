# The tests under sanitizers; included by the Makefile.
#
#   make sanitize           both of these; MIST_BRIEF=13 leaves out twelve of thirteen cases
#                           where there are many, and tests that take long
#   make sanitize-address   addresses, leaks, undefined behaviour: nearly all tests
#   make sanitize-threads   data races: tests of the executor, the tuner and the profiler
#
# Each has a build folder of its own; gcc's warnings are those of the plain build alone, since
# instrumented code has others. A finding ends the program, so the test fails. What is
# excused, and why, stands in options.c.

ifneq ($(findstring tests/sanitize/options.o,$(LDFLAGS)),)
$(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS): | $(filter %.o,$(LDFLAGS))
endif

# ------------------------------------------------------------- addresses, undefined behaviour
ADDRESS_BUILD := CI= BUILD=$(BUILD)/address CC=gcc CXX=g++ \
    CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined' \
    LDFLAGS=$(BUILD)/address/tests/sanitize/options.o

# Replayed corpora: the fuzzer has sanitizers of its own. slow_gpu_calls packs programs for
# machines that have no sanitizer. install calls make, which would build for GPUs here, too.
ADDRESS_TESTS := $(filter-out $(FUZZ_TESTS) %/slow_gpu_calls.t %/install.t,$(TESTS))

sanitize-address-build: $(TOOLS) $(FAULTS) $(filter $(BUILD)/%,$(ADDRESS_TESTS))
# Whatever test_training_near runs, test_training_random does, too; pages and sweeps run what
# other tests run.
BRIEF_WITHOUT = $(if $(MIST_BRIEF),tests/cli/slow_% %/locale.t %/signals.t %/verify.t %/requeue.t %/readme.t %/manual.t \
    %/sweep.t %/constraint.t %/test_power_loss %/test_training_near)
sanitize-address-run: sanitize-address-build
	$(Q)$(call run_tests,$(filter-out $(BRIEF_WITHOUT),$(ADDRESS_TESTS)))
sanitize-address:
	$(Q)$(MAKE) --no-print-directory $(ADDRESS_BUILD) sanitize-address-run

# -------------------------------------------------------------------------------- data races
# clang's OpenMP tells the sanitizer of its threads through libarcher, which stands beside it
# and is found by the path in the program; it reads its one option from the environment. The
# emulator's fibers are left out, and what is needed of it stands in no_emulator.c.
LLVM_LIBDIR := $(wildcard /usr/lib/llvm-14/lib)
THREADS_BUILD := CI= BUILD=$(BUILD)/threads CC=clang-14 CXX=g++ CUDA_EMULATED= \
    CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread' \
    LDFLAGS='$(addprefix $(BUILD)/threads/tests/sanitize/,options.o no_emulator.o) -Wl,--disable-new-dtags,-rpath,$(LLVM_LIBDIR)'
THREADS_TESTS := $(patsubst %,$(BUILD)/tests/unit/test_%,backend collectives comm comm_groups cpu_kernels cpu_sum \
    data device profile replay runtime runtime_faults search state thread_pool train_state validate) \
    $(patsubst %,$(BUILD)/tests/prop/test_%,inter_stage resume training_random) \
    $(patsubst %,tests/cli/%.t,profile train tune)

# With ignore_noninstrumented_modules clang 14 takes all callers of the C library for such modules;
# without it libarcher warns at every start. So it reads 1, and the sanitizer the file behind that.
sanitize-threads-run: test_environment := \
    TSAN_OPTIONS=ignore_noninstrumented_modules=1:include=$(CURDIR)/tests/sanitize/threads.options
sanitize-threads-run: $(TOOLS) $(filter $(BUILD)/%,$(THREADS_TESTS))
	$(Q)$(call run_tests,$(THREADS_TESTS))
sanitize-threads:
	$(Q)$(MAKE) --no-print-directory $(THREADS_BUILD) sanitize-threads-run

sanitize: deps-lint ## all tests under sanitizers: addresses, undefined behaviour, data races
	$(Q)$(MAKE) --no-print-directory $(jobs) sanitize-address
	$(Q)$(MAKE) --no-print-directory $(jobs) sanitize-threads
.PHONY: sanitize sanitize-address sanitize-address-build sanitize-address-run sanitize-threads sanitize-threads-run

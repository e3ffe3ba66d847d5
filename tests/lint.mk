# What looks for mistakes without running anything; included by the Makefile.
#
#   make lint    layout of the sources, clang's warnings and clang-tidy (.clang-tidy and
#                tests/.clang-tidy say what for), gcc's analyzer, cppcheck, shellcheck
#
# All are silent on this tree; what is excused stands, with its reason, beside the code or
# here. Results are kept in $(BUILD)/lint: a file that has not changed is not read again.
LINT := $(BUILD)/lint
LINT_C := $(filter %.c,$(SOURCES))
LINT_FLAGS = $(STD) -I. -DMIST_VERSION='"$(VERSION)"' $(MPI_CFLAGS) $(CUDA_CFLAGS) -fopenmp -DFUZZ_TARGET='""'

# A generated header is missing.
TIDY_C := $(filter-out tests/emulation/libcuda_stand_in.c,$(LINT_C))
ANALYZER_C := $(filter-out core/status.c tests/%,$(LINT_C))
ifeq ($(CUDA_HEADERS),)
TIDY_C := $(filter-out tests/emulation/libcuda_stand_in.c,$(LINT_C))
ANALYZER_C := $(filter-out exec/cuda/%,$(ANALYZER_C))
endif

$(LINT)/%.tidy: %.c .clang-tidy tests/.clang-tidy
	@mkdir -p $(@D)
	$(call say,TIDY,$<)
	$(Q)clang-tidy-14 --quiet $< -- $(LINT_FLAGS) $(filter-out -Werror,$(WARN)) 2>$@.log || { cat $@.log; exit 1; }
	@touch $@

# Off: checks that don't know arrays that a loop fills, owners that are structs, and a status
# that other files return; sanitizers and fault loops find what they look for.
# lint_contracts.h tells what mist_err_set() returns; it can't stand before a file that chooses
# what the C library declares.
ANALYZER_FLAGS := -O1 -fanalyzer -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-malloc-leak \
                  -Wno-analyzer-possible-null-dereference -Wno-analyzer-possible-null-argument -Werror
$(LINT)/%.analyzed: %.c tests/lint_contracts.h
	@mkdir -p $(@D)
	$(call say,ANALYZE,$<)
	$(Q)gcc $(LINT_FLAGS) $(ANALYZER_FLAGS) $$(grep -q '^#define _.*_SOURCE' $< || echo -include tests/lint_contracts.h) -MMD -MP -MF $(LINT)/$*.d -MT $@ -MT $(LINT)/$*.tidy -c $< -o /dev/null
	@touch $@

.PHONY: lint-checks lint-format lint-cppcheck lint-tidy lint-analyzer lint-shell
lint-checks: lint-format lint-cppcheck lint-tidy lint-analyzer lint-shell
lint-format:
	$(Q)clang-format-14 --dry-run --Werror $(SOURCES)
lint-tidy: $(TIDY_C:%.c=$(LINT)/%.tidy)
lint-analyzer: $(ANALYZER_C:%.c=$(LINT)/%.analyzed)
# ctuuninitvar takes every out parameter of another file for a read of it.
lint-cppcheck:
	$(call say,CPPCHECK,'all sources')
	@mkdir -p $(LINT)/cppcheck
	$(Q)cppcheck -q --std=c11 --error-exitcode=1 --inline-suppr --suppress=missingIncludeSystem \
	    --suppress=ctuuninitvar --enable=warning,portability --cppcheck-build-dir=$(LINT)/cppcheck \
	    -I. -DMIST_VERSION='"0"' $(LINT_C)
# Sourced files and words that are split on purpose are not findings.
lint-shell:
	$(Q)shellcheck -s sh -S warning -e SC1090,SC1091,SC2010,SC2027,SC2034,SC2046,SC2086,SC2120,SC2145,SC2154 $(wildcard .package/*.sh tests/*.sh tests/cli/*.t tests/cli/*.sh)

# Which lines the tests run; included by the Makefile. Printed by file, folder and group; fails below
# the bounds that tests/coverage.sh names.
COVERAGE_END := $(BUILD)/coverage/tests/coverage_end.o
coverage: deps ## lines that the tests run, by file, folder and group
	$(Q)$(MAKE) --no-print-directory $(jobs) CI= BUILD=$(BUILD)/coverage CC=gcc CXX=g++ LDFLAGS='--coverage $(COVERAGE_END) -Wl,--wrap=_exit,--wrap=MPI_Abort,--wrap=execvp' \
	    CFLAGS='-O0 -g1 --coverage -fprofile-update=atomic' coverage-run
ifneq ($(findstring tests/coverage_end.o,$(LDFLAGS)),)
$(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS): | $(filter %.o,$(LDFLAGS))
endif
# Counts of the last time are not this time's. Of tests with many cases one in seven does, as unoptimised
# code is slow; MIST_BRIEF=1: all of them.
coverage-run: test_environment := MIST_BRIEF=$(or $(MIST_BRIEF),7)
coverage-run: $(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS)
	$(Q)find $(BUILD) -name '*.gcda' -delete
	$(Q)$(call run_tests,$(filter-out %/install.t %/slow_gpu_calls.t %/slow_faults.t %/slow_two_hosts.t,$(TESTS))); \
	    code=$$?; tests/coverage.sh $(BUILD) && exit $$code
.PHONY: coverage coverage-run

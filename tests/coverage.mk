# Which lines the tests run; included by the Makefile. Printed by folder and by file; fails below
# the bounds that tests/coverage.sh names.
coverage: deps ## lines that the tests run, by folder and file
	$(Q)$(MAKE) --no-print-directory $(jobs) CI= BUILD=$(BUILD)/coverage CC=gcc CXX=g++ LDFLAGS=--coverage \
	    CFLAGS='-O0 -g1 --coverage -fprofile-update=atomic' coverage-run
# Counts of the last time are not this time's.
coverage-run: $(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS)
	$(Q)find $(BUILD) -name '*.gcda' -delete
	$(Q)$(call run_tests,$(filter-out %/slow_gpu_calls.t %/slow_faults.t %/slow_two_hosts.t,$(TESTS)))
	$(Q)tests/coverage.sh $(BUILD)
.PHONY: coverage coverage-run

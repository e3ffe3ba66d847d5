# The tests under sanitizers; included by the Makefile.
#
#   make sanitize           both of these
#   make sanitize-address   addresses, leaks, undefined behaviour: all tests
#   make sanitize-threads   data races: what runs threads
#
# Each has a build folder of its own. A finding ends the program, so the test fails. What is
# excused, and why, stands in options.c.
ADDRESS_BUILD := BUILD=$(BUILD)/address CC=gcc CXX=g++ LDFLAGS=$(BUILD)/address/tests/sanitize/options.o \
    CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined'

ifneq ($(findstring tests/sanitize/options.o,$(LDFLAGS)),)
$(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS): | $(BUILD)/tests/sanitize/options.o
endif

.PHONY: sanitize sanitize-address sanitize-threads sanitize-address-build sanitize-address-tests
sanitize-address-build: $(TOOLS) $(UNIT_TESTS) $(CUDA_TESTS)
sanitize-address-tests: sanitize-address-build
	$(Q)$(call run_tests,$(TESTS))
sanitize-address:
	$(Q)$(MAKE) --no-print-directory $(ADDRESS_BUILD) sanitize-address-tests

# One result whatever the compiler: the tools that compute or draw, at both ends of optimisation,
# beside the plain build, give the same bytes. Included by the Makefile.
#
#   make identical       installs what is missing, then does the same as
#   make identical-run   builds the tools twice more and compares: identical.sh says what
IDENTICAL_TOOLS := mist-sim mist-tune mist-exec mist-plot
identical_build = $(Q)$(MAKE) $(if $(V),,-s) --no-print-directory $(jobs) CI= BUILD=$(BUILD)/$(1) CC=$(2) CXX=g++ CFLAGS='$(3) -g0' LDFLAGS= \
    $(IDENTICAL_TOOLS:%=$(BUILD)/$(1)/%)
identical: deps-lint ## the same bytes from gcc and clang, -O0 and -O3, 1 to 4 threads
	$(Q)$(MAKE) --no-print-directory $(jobs) identical-run
identical-run: $(IDENTICAL_TOOLS:%=$(BUILD)/%)
	+$(call identical_build,gcc-O0,gcc,-O0)
	+$(call identical_build,clang-O3,clang-14,-O3)
	$(Q)MIST_BUILD=$(abspath $(BUILD)) prove $(if $(V),-v) --exec '' tests/identical.sh :: \
	    $(abspath $(BUILD)) $(abspath $(BUILD)/gcc-O0) $(abspath $(BUILD)/clang-O3)
.PHONY: identical identical-run

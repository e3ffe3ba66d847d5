# What is preloaded into tools to make calls fail, and the programs that use it. Included
# by the Makefile behind its pattern rules.

FAULTS := $(addprefix $(BUILD)/tests/faults/,inject.so sweep)
tests-build tests-all: $(FAULTS)
$(BUILD)/tests/prop/test_power_loss: | $(FAULTS)

# Without a sanitizer, even where tools have one, whose malloc() is then behind this. Lines aren't counted.
FAULTS_CFLAGS = $(filter-out -fsanitize% -fno-sanitize% --coverage -fprofile%,$(ALL_CFLAGS))
$(BUILD)/tests/faults/%.pic.o: tests/faults/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(FAULTS_CFLAGS) -fPIC -c $< -o $@
$(BUILD)/tests/faults/inject.so: $(BUILD)/tests/faults/inject.pic.o $(BUILD)/tests/faults/record.pic.o
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $^ -o $@ -ldl
$(BUILD)/tests/faults/sweep: $(BUILD)/tests/faults/sweep.pic.o
	$(call say,LINK,$@)
	$(Q)$(CC) $^ -o $@

# Every call, and many disks for every moment of a power cut.
soak: soak-faults
.PHONY: soak-faults
soak-faults: $(TOOLS) $(FAULTS) $(BUILD)/tests/prop/test_power_loss
	$(Q)MIST_FAULTS=all MIST_STATES=100 $(call run_tests,$(BUILD)/tests/prop/test_power_loss tests/cli/slow_faults.t)

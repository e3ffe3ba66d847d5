# What runs on a machine with a GPU: the tests of exec/cuda against the real libraries.
#
#   tests/gpu/pack                                   builds all of it and packs it
#   make -f Makefile -f tests/gpu/gpu.mk gpu-tests   builds the tests into build/gpu
#
# Read behind the Makefile, which includes it. Every tests/unit/test_cuda_*.c is
# compiled with -DMIST_TEST_ON_GPU but those that test against a stand-in of the emulator;
# tests of tests/gpu and of training reach the GPU through the plugin, as the tools do.
ifndef GPU_RULES
GPU_RULES := yes
GPU := $(BUILD)/gpu

# attention_graph, attention_plans: cuDNN's interpreter, a described device; device, graph: orders
# of emulated streams (tests/gpu/test_gpu_device.c is its twin); recorder*: made-up records; sequence:
# notes launches; start: GPUs that are refused; tuning: the emulated GPU's name.
GPU_STAND_IN := attention_graph attention_plans device graph recorder recorder_cupti sequence start tuning
GPU_KERNEL_TESTS := $(filter-out $(GPU_STAND_IN:%=tests/unit/test_cuda_%.c),$(wildcard tests/unit/test_cuda_*.c))
GPU_PLUGIN_TESTS := $(wildcard tests/gpu/test_*.c) tests/prop/test_cuda_training.c
GPU_TESTS := $(patsubst %.c,$(GPU)/%,$(GPU_KERNEL_TESTS) $(GPU_PLUGIN_TESTS))
GPU_LIBS  := $(foreach f,exec sim traces core,$(call library,$(f)))
GPU_LINK  := -lcmocka $(LIBS_EXEC) $(LIBS_CORE) -ldl

$(GPU)/%.o: ALL_CFLAGS += $(MPI_CFLAGS) $(CUDA_CFLAGS) -fopenmp -DMIST_TEST_ON_GPU
$(GPU)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# Host code and kernels of the plugin, in the test itself: its symbols are not exported.
$(patsubst %.c,$(GPU)/%,$(GPU_KERNEL_TESTS)): $(GPU)/%: $(GPU)/%.o $(GPU)/tests/gpu/backend.o $(patsubst %.c,$(BUILD)/pic/%.o,$(CUDA_HOST)) \
                                              $(patsubst %.cu,$(BUILD)/%.cu.o,$(CUDA_KERNELS)) $(GPU_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $(filter %.o,$^) -o $@ -Wl,--start-group $(GPU_LIBS) -Wl,--end-group \
	    $(GPU_LINK) $(CUDA_LIBS)
$(patsubst %.c,$(GPU)/%,$(GPU_PLUGIN_TESTS)): $(GPU)/%: $(GPU)/%.o $(GPU)/tests/gpu/backend.o $(GPU_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $(filter %.o,$^) -o $@ -Wl,--start-group $(GPU_LIBS) -Wl,--end-group $(GPU_LINK)
$(GPU)/bench_cuda_kernels: $(GPU)/tests/bench/bench_cuda_kernels.o $(GPU_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -pthread $(filter %.o,$^) -o $@ -Wl,--start-group $(GPU_LIBS) -Wl,--end-group $(GPU_LINK)

.PHONY: gpu-tests gpu-pack gpu-list
gpu-tests: $(if $(CUDA_PLUGIN),$(GPU_TESTS) $(GPU)/bench_cuda_kernels $(CUDA_PLUGIN)) $(TOOLS)
	@$(if $(CUDA_PLUGIN),,echo "make: no CUDA here: the tests of GPUs are not built"; exit 1)
gpu-list: # for the pack
	@echo $(GPU_TESTS) $(GPU)/bench_cuda_kernels
gpu-pack: ## build and pack what a machine with a GPU needs (.gpu)
	@tests/gpu/pack
endif

# The CUDA plugin, where CUDA is installed, and its emulation on the CPU, for the tests.
#
# Included by the Makefile behind its pattern rules. Gives CUDA_PLUGIN (part of `all`; empty
# without CUDA), CUDA_EMULATED (a library for the tests) and CUDA_CFLAGS (for its users).
# Where CUDA is installed in an odd way: make CUDA_INCLUDE="dir dir" CUDA_LIBDIR="dir dir".
# CUDA_ARCHS="90" builds for one architecture alone, in a fraction of the time.

CUDA_HOME    ?= $(if $(NVCC),$(patsubst %/bin/nvcc,%,$(realpath $(NVCC))),/usr/local/cuda)
CUDA_INCLUDE ?= $(CUDA_HOME)/include $(CUDA_HOME)/extras/CUPTI/include
CUDA_LIBDIR  ?= $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/extras/CUPTI/lib64)
CUDA_CFLAGS  := $(addprefix -isystem ,$(wildcard $(CUDA_INCLUDE)))

# All or nothing: a toolkit without cuDNN or NCCL builds no plugin, and says what it lacks.
CUDA_NEEDS   := cuda_runtime_api.h cublasLt.h cudnn.h nccl.h cupti.h
CUDA_OLDEST  := 12050# CUDART_VERSION; before it, CUPTI and the runtime lack functions
cuda_header   = $(firstword $(wildcard $(addsuffix /$(1),$(CUDA_INCLUDE) /usr/local/include /usr/include)))
CUDA_LACKS   := $(strip $(foreach h,$(CUDA_NEEDS),$(if $(call cuda_header,$(h)),,$(h))) \
                $(foreach h,$(call cuda_header,cuda_runtime_api.h),$(shell awk '/define CUDART_VERSION/ \
                { exit } END { if ($$3 < $(CUDA_OLDEST)) print "CUDA 12.5 or newer" }' $(h))))
CUDA_HEADERS := $(if $(CUDA_LACKS),,yes)

CUDA_KERNELS := $(wildcard exec/cuda/*.cu)
CUDA_HOST    := $(wildcard exec/cuda/*.c)
CUDA_PLUGIN  := $(if $(and $(NVCC),$(CUDA_HEADERS)),$(BUILD)/libmist_cuda.so)
ifneq ($(and $(NVCC),$(CUDA_LACKS)),)
ifneq ($(filter all install,$(or $(MAKECMDGOALS),all)),)
$(info make: no CUDA plugin: there is nvcc, but not $(CUDA_LACKS))
endif
endif

# -------------------------------------------------------------------------------- plugin
CUDA_ARCHS ?= $(patsubst sm_%,%,$(filter sm_80 sm_90 sm_100,$(shell $(NVCC) --list-gpu-code)))
NVCC_FLAGS = -I. -O3 -g -std=c++17 $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
             -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
             -Xptxas -v $(if $(CI),-Werror all-warnings) \
             -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics

# What the plugin needs of the rest of Mist it has for itself: it must not depend on what
# the program that opens it exports.
CUDA_OWN := $(wildcard core/*.c) exec/device/device.c exec/comm/collectives.c exec/comm/comm_watchdog.c \
            $(call lib_sources,traces) $(call lib_sources,sim)
CUDA_LIBS = $(foreach d,$(CUDA_LIBDIR),-L$(d) -Wl,-rpath,$(d)) -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed \
            -lcublasLt -lnccl -lcupti -l:libcudart_static.a -lpthread -ldl -lrt

all: $(CUDA_PLUGIN)

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(CUDA_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

# What ptxas says is kept beside the object; registers that went to memory are shown.
$(BUILD)/exec/cuda/%.cu.o: exec/cuda/%.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2>$(@:.cu.o=.ptxas) || \
	    { grep -v 'ptxas info' $(@:.cu.o=.ptxas); rm -f $@; exit 1; }
	$(Q)grep -E 'warning|error' $(@:.cu.o=.ptxas) || true
	$(Q)awk '/Compiling entry function/ { name = $$6 " " $$NF } \
	    /spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print "  SPILLS  " name ":" $$0 }' \
	    $(@:.cu.o=.ptxas)

$(BUILD)/libmist_cuda_own.a: $(patsubst %.c,$(BUILD)/pic/%.o,$(CUDA_OWN))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/libmist_cuda.so: $(patsubst %.c,$(BUILD)/pic/%.o,$(CUDA_HOST)) \
                          $(patsubst %.cu,$(BUILD)/%.cu.o,$(CUDA_KERNELS)) $(BUILD)/libmist_cuda_own.a
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-z,defs -Wl,--exclude-libs,ALL -o $@ $^ $(CUDA_LIBS) $(LIBS_CORE)

# A summary of registers, memory and spills of every kernel.
cuda-registers: $(patsubst %.cu,$(BUILD)/%.cu.o,$(CUDA_KERNELS))
	$(Q)awk '/Compiling entry function/ { name = $$6 " " $$NF } /Used/ { print name ":" $$0 }' \
	    $(patsubst %.cu,$(BUILD)/%.ptxas,$(CUDA_KERNELS))

# Renews the tables of the kernel sequence in the README.
cuda-sequence: $(BUILD)/tests/unit/test_cuda_sequence
	$(Q)$< --write

install: install-cuda
install-cuda: $(CUDA_PLUGIN)
	$(Q)$(if $(CUDA_PLUGIN),install -D -m 755 $(CUDA_PLUGIN) $(DESTDIR)$(PREFIX)/lib/mist/libmist_cuda.so)
uninstall: uninstall-cuda
uninstall-cuda:
	$(Q)rm -f $(DESTDIR)$(PREFIX)/lib/mist/libmist_cuda.so
.PHONY: cuda-registers cuda-sequence install-cuda uninstall-cuda

# ----------------------------------------------------------------------------- emulation
# Kernels and emulator need a C++ compiler, but nothing of its library. Host code is there
# where CUDA's headers are; the recorder needs a profiler, which is not emulated.
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CUDA_EMULATED := $(BUILD)/libmist_cuda_emulated.a
EMULATED_CXXFLAGS = -std=c++17 -Wall -Wextra -Wno-unknown-pragmas $(CFLAGS) -ffp-contract=off -fno-exceptions -fno-rtti \
                    -fno-threadsafe-statics -I. -MMD -MP -pthread
EMULATED_HOST := $(if $(CUDA_HEADERS),$(filter-out exec/cuda/plugin.c exec/cuda/recorder%.c,$(CUDA_HOST)))
EMULATED_C    := $(filter-out tests/emulation/lib%,$(wildcard tests/emulation/*.c))
EMULATED_CC   := $(filter-out tests/emulation/test_%.cc,$(wildcard tests/emulation/*.cc))
emulated = $(patsubst %.$(1),$(BUILD)/emulated/%.o,$(2))

$(BUILD)/emulated/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(EMULATED_CXXFLAGS) -include tests/emulation/emulation.h -x c++ -c $< -o $@
$(BUILD)/emulated/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(EMULATED_CXXFLAGS) -c $< -o $@
$(BUILD)/emulated/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(CUDA_CFLAGS) -c $< -o $@
$(CUDA_EMULATED): $(call emulated,cu,$(CUDA_KERNELS)) $(call emulated,cc,$(EMULATED_CC)) \
                  $(call emulated,c,$(EMULATED_HOST) $(EMULATED_C))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
# Tests of host code are built whole where all of CUDA's headers are, else they skip.
$(BUILD)/tests/%.o: ALL_CFLAGS += $(if $(CUDA_HEADERS),$(CUDA_CFLAGS))

# The emulator's own test.
CUDA_TESTS := $(BUILD)/tests/emulation/test_emulation
$(CUDA_TESTS): $(BUILD)/emulated/tests/emulation/test_emulation.o $(CUDA_EMULATED) $(call library,core)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CFLAGS) $(LDFLAGS) -pthread $^ -lcmocka -lm -o $@

# cuDNN makes plans here with a stand-in for the driver, which knows every function that
# NVIDIA's stub of it has, and an interpreter of cuDNN's graphs computes what they say.
DRIVER_STUB := $(firstword $(wildcard $(addsuffix /stubs/libcuda.so,$(CUDA_LIBDIR))))
ifneq ($(and $(CUDA_HEADERS),$(DRIVER_STUB)),)
STAND_INS := $(BUILD)/tests/emulation/libcuda.so.1 $(BUILD)/tests/emulation/libcudnn_interpreter.so
$(BUILD)/tests/emulation/libcuda_functions.h: $(DRIVER_STUB)
	@mkdir -p $(@D)
	$(Q)nm -D --defined-only $< | sed -n 's/.* T \(cu[A-Za-z0-9_]*\)$$/MIST_DRIVER_FUNCTION(\1)/p' > $@
$(BUILD)/tests/emulation/libcuda.so.1: tests/emulation/libcuda_stand_in.c $(BUILD)/tests/emulation/libcuda_functions.h
	$(call say,CC,$<)
	$(Q)$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) $(CUDA_CFLAGS) -I$(BUILD)/tests/emulation -shared -fPIC -Wl,-soname,libcuda.so.1 $< -o $@
$(BUILD)/tests/emulation/libcudnn_interpreter.so: tests/emulation/cudnn_interpreter.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) $(CUDA_CFLAGS) -shared -fPIC -Wl,-soname,libcudnn.so.9 $< -lm -o $@
$(patsubst %,$(BUILD)/tests/unit/test_cuda_attention_%,plans graph cudnn): | $(STAND_INS)
endif

/*
 * What data sheets say, and what is reached of it. See preset_table.h.
 *
 * Peaks are dense: half of what is advertised "with sparsity". Memory is what the driver
 * reports (nvidia-smi), rates of links are one way: half of "bidirectional" ones.
 *
 * product_frac and the shares were fitted to public tables of kernels and of nccl-tests,
 * never to training runs; sustained_frac alone is fitted to runs, to those of MPT-1B on
 * H100 with 512 to 2,048 tokens, which tests/published.sh calls calibration.
 * tests/unit/test_preset.c takes their residuals again where the tables are at hand:
 *   products   Vidur's products in fp16 on A100, H100 and A40; for H200 H100's; for B200
 *              the largest rate in Stas Bekman's "maximum achievable matmul FLOPS", less
 *              what Vidur's H100 stays below its own; Aceso's profiles for A10G, L4, V100
 *   power      of Meta's H100, limited to 500 W, torchao knows 0.60 of the peak by large
 *              products (benchmarks/float8, roofline_utils.py); at 700 W they reach 0.73
 *   memory     te42kyfo's gpu-benches, stream: 0.66 (H200) to 0.96 (L40) of the rate
 *   host       copies of two devices share an uplink of x16 in DGX-1 and DGX A100, which have
 *              four PCIe switches for eight devices
 *   links      vTrain's and NVIDIA's nccl-tests of A100 and H100 nodes, Stas Bekman's of
 *              H200 and B200, Aceso's transfers and all-reduces between L4, its transfers
 *              between V100 (21.3 GB/s: one of a device's six links)
 *   PCIe       depends on the host more than on the device. Of the link's rate rings reach
 *              0.16 between two sockets (8 L4; 4 A100 PCIe 0.165), 0.47 through the host's
 *              memory, as GeForce drivers go (8 RTX 4090; 8 RTX 5090 0.44), and by P2P
 *              through a switch or one socket 0.80, 0.78, 0.82 (4, 6 and 4 RTX 4090 with
 *              another driver), 0.72 (8 RTX 5090), 0.66 on two sockets of EPYC (8 RTX
 *              4090); in one container 0.08. L40S and H100 PCIe take 0.47, between these;
 *              two nodes of 2 L40S show that they reach 0.31 or more
 *   slowdown   of computing and NCCL beside each other: the factors that Mist's artifact
 *              fitted to measurements on A100 and L4, for other devices of their wiring, too
 * Devices without a table of their own (L40S, RTX 4090, H100 PCIe) have the share of
 * their nearest relative. A800 and H800 are A100 and H100 with links of 400 GB/s.
 */
#include "traces/preset_table.h"

#define FIT_A100  "fit of Vidur's products on A100"
#define FIT_H100  "fit of Vidur's products on H100"
#define FIT_A40   "fit of Vidur's products on A40"
#define FIT_ACESO "Aceso's operator profiles"

/* What large products lose in training: on H100 a product by itself draws the power that
 * the limit allows before its clock goes down, and memory and links want theirs. */
#define SUSTAINED_H100 0.78
#define RUNS_H100      "MPT-1B's runs on 8 to 64 H100, calibration"
#define RUNS_A100      "runs on A100, which ask for no less"

#define FIT_LINKS "fit of public link measurements"
#define RTX_4090  "nccl-tests and p2pBandwidthLatencyTest of 8 RTX 4090"
#define RESIDUAL  "residual of the fits"
#define REPORTS   "nccl-tests of nine nodes, 0.16 to 0.82 of PCIe"

#define BESIDE_A100 "fit of Mist's artifact, A100"
#define BESIDE_L4   "fit of Mist's artifact, L4"

/* clang-format off */
#define PEAKS(fp32, tf32, fp16, bf16, fp8)                                               \
    {[MIST_TRACE_FP32] = fp32, [MIST_TRACE_TF32] = tf32, [MIST_TRACE_FP16] = fp16,       \
     [MIST_TRACE_BF16] = bf16, [MIST_TRACE_FP8] = fp8}

static const struct mist_preset presets[] = {
    {"v100-sxm", "v100", "NVIDIA Tesla V100 SXM2 32GB",
     PEAKS(15.7, 0, 125, 0, 0), 32768, 900, 80, 0.70, 1, 300,
     MIST_WIRING_MESH, 150, 15.75,
     "DGX-1", 8, 4, 100, 512, 63,
     "NVIDIA V100 datasheet (January 2020)", FIT_ACESO, RUNS_A100},
    {"a100-40", "a100-sxm-40", "NVIDIA A100 SXM4 40GB",
     PEAKS(19.5, 156, 312, 312, 0), 40960, 1555, 108, 0.76, 1, 400,
     MIST_WIRING_NVLINK, 300, 31.5,
     "DGX A100 320GB", 8, 8, 200, 1024, 126,
     "NVIDIA A100 datasheet (June 2021)", FIT_A100, RUNS_A100},
    {"a100-80", "a100", "NVIDIA A100 SXM4 80GB",
     PEAKS(19.5, 156, 312, 312, 0), 81920, 2039, 108, 0.76, 1, 400,
     MIST_WIRING_NVLINK, 300, 31.5,
     "DGX A100 640GB", 8, 8, 200, 2048, 126,
     "NVIDIA A100 datasheet (June 2021)", FIT_A100, RUNS_A100},
    {"a800", "a800-80", "NVIDIA A800 SXM4 80GB",
     PEAKS(19.5, 156, 312, 312, 0), 81920, 2039, 108, 0.76, 1, 400,
     MIST_WIRING_NVLINK, 200, 31.5,
     "DGX A800 640GB", 8, 8, 200, 2048, 126,
     "NVIDIA A800 datasheet (2022)", FIT_A100, RUNS_A100},
    {"a10g", NULL, "NVIDIA A10G 24GB",
     PEAKS(31.5, 35, 70, 70, 0), 23028, 600, 80, 0.90, 1, 300,
     MIST_WIRING_PCIE, 31.5, 31.5,
     "AWS g5.48xlarge", 8, 1, 100, 768, 0,
     "NVIDIA A10G datasheet for AWS (2021)", FIT_ACESO, RUNS_A100},
    {"l4", NULL, "NVIDIA L4 24GB",
     PEAKS(30.3, 60, 121, 121, 242.5), 23034, 300, 58, 0.50, 1, 72,
     MIST_WIRING_PCIE, 31.5, 31.5,
     "Google g2-standard-96", 8, 1, 100, 384, 0,
     "NVIDIA L4 datasheet (2023)", FIT_ACESO ", at 72 W", RUNS_A100},
    {"l40s", NULL, "NVIDIA L40S 48GB",
     PEAKS(91.6, 183, 362.05, 362.05, 733), 46068, 864, 142, 0.70, 1, 350,
     MIST_WIRING_PCIE_MEMORY, 31.5, 31.5,
     "AWS g6e.48xlarge", 8, 4, 100, 1536, 0,
     "NVIDIA L40S datasheet (2023)", FIT_A40 ", less at 350 W", RUNS_A100},
    {"h100-pcie", NULL, "NVIDIA H100 PCIe 80GB",
     PEAKS(51, 378, 756, 756, 1513), 81559, 2000, 114, 0.70, SUSTAINED_H100, 350,
     MIST_WIRING_PCIE_MEMORY, 63, 63,
     "8 H100 PCIe", 8, 0, 0, 1024, 0,
     "NVIDIA H100 datasheet (2023)", FIT_H100 ", less at 350 W", RUNS_H100},
    {"h100-sxm", "h100", "NVIDIA H100 SXM5 80GB",
     PEAKS(67, 494.7, 989.4, 989.4, 1978.9), 81559, 3350, 132, 0.73, SUSTAINED_H100, 700,
     MIST_WIRING_NVSWITCH_SUMS, 450, 63,
     "DGX H100", 8, 8, 400, 2048, 0,
     "NVIDIA H100 Tensor Core GPU architecture, v1.04", FIT_H100, RUNS_H100},
    {"h800-sxm", "h800", "NVIDIA H800 SXM5 80GB",
     PEAKS(67, 494.7, 989.4, 989.4, 1978.9), 81559, 3350, 132, 0.73, SUSTAINED_H100, 700,
     MIST_WIRING_NVSWITCH_SUMS, 200, 63,
     "HGX H800", 8, 8, 400, 2048, 0,
     "NVIDIA H800 datasheet (2023)", FIT_H100, RUNS_H100},
    {"h200-sxm", "h200", "NVIDIA H200 SXM 141GB",
     PEAKS(67, 494.7, 989.4, 989.4, 1978.9), 143771, 4800, 132, 0.73, SUSTAINED_H100, 700,
     MIST_WIRING_NVSWITCH_SUMS, 450, 63,
     "DGX H200", 8, 8, 400, 2048, 0,
     "NVIDIA H200 datasheet (2024)", FIT_H100, RUNS_H100},
    {"b200-sxm", "b200", "NVIDIA B200 SXM 180GB",
     PEAKS(75, 1125, 2250, 2250, 4500), 183359, 7700, 148, 0.72, SUSTAINED_H100, 1000,
     MIST_WIRING_NVSWITCH_SUMS, 900, 63,
     "DGX B200", 8, 8, 400, 2048, 0,
     "NVIDIA DGX B200 datasheet (2024)", "largest matmul rate, Stas Bekman", RUNS_H100},
    {"rtx4090", "rtx-4090", "NVIDIA GeForce RTX 4090 24GB",
     PEAKS(82.6, 82.6, 165.2, 165.2, 330.3), 24564, 1008, 128, 0.78, 1, 450,
     MIST_WIRING_PCIE_MEMORY, 31.5, 31.5,
     "8 RTX 4090", 8, 0, 0, 512, 0,
     "NVIDIA Ada GPU architecture, v2.1", FIT_A40, RUNS_A100},
};

const struct mist_preset_wiring_shares mist_preset_wirings[MIST_N_WIRINGS] = {
    /*                             name                         sends rings  sums  latency_us, residual, slowdowns */
    [MIST_WIRING_PCIE]          = {"PCIe, between sockets",      0.30, 0.16,    0,  10, 0.4, 1.17, 1,
                                   FIT_LINKS, "Aceso's all-reduces on L4", REPORTS, BESIDE_L4},
    [MIST_WIRING_PCIE_MEMORY]   = {"PCIe, through host memory",  0.62, 0.47,    0,   3, 0.4, 1.17, 1,
                                   RTX_4090, RTX_4090, REPORTS, BESIDE_L4},
    [MIST_WIRING_MESH]          = {"NVLink, no switch",          0.14, 0.78,    0,   5, 0.2, 1.29, 1.04,
                                   "Aceso's transfers between V100", FIT_LINKS, RESIDUAL, BESIDE_A100},
    [MIST_WIRING_NVLINK]        = {"NVLink",                     0.78, 0.78,    0,   5, 0.2, 1.29, 1.04,
                                   FIT_LINKS, FIT_LINKS, RESIDUAL, BESIDE_A100},
    [MIST_WIRING_NVSWITCH_SUMS] = {"NVSwitch, sums in it",       0.78, 0.78, 0.56,   4, 0.2, 1.29, 1.04,
                                   FIT_LINKS, FIT_LINKS, RESIDUAL, BESIDE_A100},
};
/* clang-format on */

const struct mist_preset_shares mist_preset_shares = {
    .memory_frac = 0.82,
    .power_exponent = 0.58, /* log(0.73 / 0.60) / log(700 / 500) */
    .host_frac = 0.82,
    .adapter_frac = 0.8,
    .curve_residual_frac = 0.11,
    .adapter_latency_us = 15,
    .host_latency_us = 10,
    .launch_us = 2.5, /* gpu-benches, small kernels: 1.6 (L40) to 2.7 us (A100) */
    .context_memory_bytes = (int64_t)512 << 20,
    /* a connection's buffers are 4 MiB (NCCL_BUFFSIZE), 4.7 (LL128) and 0.5 (LL); 24
     * channels of an A100 node, 4 or 5 communicators of a rank */
    .nccl_memory_bytes = (int64_t)1024 << 20,
};

const struct mist_preset *mist_preset_get(int i)
{
    return i >= 0 && i < (int)(sizeof presets / sizeof *presets) ? &presets[i] : NULL;
}

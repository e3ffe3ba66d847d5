/*
 * The figures behind presets: data sheets, and by which share of them devices and links
 * stay below. Sources: preset_table.c.
 */
#ifndef MIST_TRACES_PRESET_TABLE_H
#define MIST_TRACES_PRESET_TABLE_H

#include "traces/trace_set.h"

/* How the devices of a node are connected. */
enum mist_preset_wiring {
    MIST_WIRING_PCIE,          /* from device to device through both sockets' bridges */
    MIST_WIRING_PCIE_MEMORY,   /* written to the host's memory and read from there */
    MIST_WIRING_MESH,          /* NVLink, straight to each other: a pair has few links */
    MIST_WIRING_NVLINK,        /* NVLink through a switch */
    MIST_WIRING_NVSWITCH_SUMS, /* a switch that sums, too (NVLink SHARP) */
    MIST_N_WIRINGS
};

struct mist_preset {
    const char *name, *alias;                     /* alias NULL: none */
    const char *device;                           /* "NVIDIA H100 SXM5 80GB" */
    double peak_tflop_per_s[MIST_N_TRACE_DTYPES]; /* dense */
    int64_t memory_mib;
    double memory_gb_per_s; /* 1e9 bytes */
    int processors;         /* streaming multiprocessors */
    double product_frac;    /* of the peak that large products reach, each by itself */
    double sustained_frac;  /* of that in training, which keeps all of the device busy */
    double power_w;         /* that it may draw */
    enum mist_preset_wiring wiring;
    double link_gb_per_s; /* of one device, one way; PCIe's own where that is the way */
    double pcie_gb_per_s; /* of one device, one way */
    /* the usual node */
    const char *node; /* "DGX H100" */
    int devices_per_node;
    int adapters;               /* 0: not known, to be declared */
    double adapter_gbit_per_s;  /* of each */
    int64_t host_memory_gib;    /* 0: not known */
    double host_gb_per_s;       /* of copies of all devices together, one way; 0: each has
                                   its own way, or not known */
    const char *source;         /* of the device's figures */
    const char *product_source; /* of product_frac */
    const char *sustained_source; /* of sustained_frac */
};

/* What is reached of these figures, the same for all. */
struct mist_preset_shares {
    double memory_frac;    /* of the memory's rate, by passes over arrays */
    double power_exponent; /* of the rate of products, as the limit of power goes down */
    double host_frac;      /* of PCIe's rate, by copies from and to the host */
    double adapter_frac;   /* of a network adapter's rate */
    double curve_residual_frac;                 /* of prices, standard deviation */
    double adapter_latency_us, host_latency_us; /* of one step, of one copy */
    double launch_us;
    int64_t context_memory_bytes, nccl_memory_bytes; /* of a process */
};
extern const struct mist_preset_shares mist_preset_shares;

/* The same between the devices of a node. */
struct mist_preset_wiring_shares {
    const char *name;
    double link_frac;   /* of a device's rate, by sends */
    double ring_frac;   /* by rings, in which a device sends and receives at once */
    double switch_frac; /* of a device's rate, by sums in the switch; 0: there are none */
    double latency_us;  /* of one step */
    double residual_frac;                      /* of prices, standard deviation */
    double compute_slowdown, message_slowdown; /* while both go on */
    const char *link_source, *ring_source, *residual_source, *slowdown_source;
};
extern const struct mist_preset_wiring_shares mist_preset_wirings[MIST_N_WIRINGS];

/* All presets, by number 0, 1, ..; NULL: there are no more. */
const struct mist_preset *mist_preset_get(int i);

#endif

/* Reads the text of a preset and makes its trace set. See preset.h. */
#include "traces/preset.h"

#include "core/parse.h"
#include "core/text_distance.h" /* of a name that does not exist */

#include <ctype.h>
#include <math.h> /* pow */
#include <stdio.h>
#include <string.h>
#include <strings.h> /* strcasecmp */
#include <sys/stat.h>

enum {
    MAX_TEXT = 256, /* a plan has as much room for it */
    MAX_PRESETS = 64,
    MAX_ADAPTERS = 64,
};

/* Of several: 1.6 Tb/s, twice what the fastest on sale have. One may stand for all. */
#define MOST_ADAPTER_BYTES_PER_S 200e9

/* No device works with a smaller part of its power. */
#define LEAST_POWER_FRAC 0.25

/* A text while it is being read. */
struct reader {
    char text[MAX_TEXT]; /* cut where pieces end */
    const struct mist_preset *preset;
    struct mist_cluster *cluster;
    unsigned keys_seen;
    struct mist_err *err;
};

#define GRAMMAR                                                                          \
    "expected NAME:NODESxDEVICES,nic=COUNTxRATE, such as h100-sxm:8x8,nic=8x400Gb/s"

/* --------------------------------------------------------------------------- names */

/* How far a preset's name, or its alias, is from what was asked for. */
static size_t distance_to(const struct mist_preset *preset, const char *name)
{
    size_t n = strlen(name);
    size_t own = mist_text_distance(name, n, preset->name, strlen(preset->name));
    size_t other = preset->alias
                       ? mist_text_distance(name, n, preset->alias, strlen(preset->alias))
                       : own;

    return own < other ? own : other;
}

static const struct mist_preset *find(const char *name)
{
    const struct mist_preset *preset;

    for (int i = 0; (preset = mist_preset_get(i)); i++)
        if (strcasecmp(preset->name, name) == 0 ||
            (preset->alias && strcasecmp(preset->alias, name) == 0))
            return preset;
    return NULL;
}

/* is_path: name could be that of a folder, too. */
static enum mist_status refuse_name(const char *name, bool is_path, struct mist_err *err)
{
    struct mist_text_near all[MAX_PRESETS] = {{0}};
    char list[256] = "";
    int n = 0;

    for (; n < MAX_PRESETS && mist_preset_get(n); n++)
        all[n] = (struct mist_text_near){n, distance_to(mist_preset_get(n), name)};
    mist_text_sort_near(all, (size_t)n);
    for (int i = 0; i < n; i++)
        mist_text_add(list, sizeof list, ", ", "%s", mist_preset_get(all[i].i)->name);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "cluster %.60s: %s; presets, the nearest first: %s "
                        "(mist-sim --presets)",
                        name,
                        is_path ? "there is no such folder, and no preset of that name"
                                : "no preset has that name",
                        list);
}

/* ------------------------------------------------------------------------- topology */

static enum mist_status refuse_topology(const struct reader *at, const char *text,
                                        struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_INPUT,
                        "cluster %s:%.40s: expected nodes and the devices of each, such "
                        "as %s:8x%d, or the number of all devices",
                        at->preset->name, text, at->preset->name,
                        at->preset->devices_per_node);
}

/* Digits alone, 1 .. max. */
static bool read_count(const char *text, int64_t max, int64_t *out)
{
    return isdigit((unsigned char)*text) &&
           mist_parse_int64(text, out, NULL) == MIST_OK && *out >= 1 && *out <= max;
}

/* All devices of whole nodes, the usual ones. */
static enum mist_status read_n_devices(struct reader *at, const char *text)
{
    int64_t n, per_node = at->preset->devices_per_node;

    if (!read_count(text, MIST_PRESET_MAX_NODES, &n))
        return refuse_topology(at, text, at->err);
    if (n > per_node && n % per_node != 0)
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster %s:%s: %lld devices are no whole nodes of %lld; "
                            "%lld and %lld are, and %s:NODESxDEVICES takes other nodes",
                            at->preset->name, text, (long long)n, (long long)per_node,
                            (long long)(n - n % per_node),
                            (long long)(n - n % per_node + per_node), at->preset->name);
    at->cluster->nodes = (int)(n > per_node ? n / per_node : 1);
    at->cluster->devices_per_node = (int)(n > per_node ? per_node : n);
    return MIST_OK;
}

static enum mist_status read_topology(struct reader *at, char *text)
{
    char *x = strchr(text, 'x');
    int64_t nodes, devices;

    if (!x)
        return read_n_devices(at, text);
    *x = '\0';
    bool is_count = read_count(text, MIST_PRESET_MAX_NODES, &nodes) &&
                    read_count(x + 1, 1 << 20, &devices);
    *x = 'x';
    if (!is_count)
        return refuse_topology(at, text, at->err);
    if (devices > MIST_PRESET_MAX_DEVICES_PER_NODE)
        return mist_err_set(
            at->err, MIST_ERR_INPUT,
            "cluster %s:%s: nodes of %lld devices; a node has at most %d, "
            "%s usually %d",
            at->preset->name, text, (long long)devices, MIST_PRESET_MAX_DEVICES_PER_NODE,
            at->preset->name, at->preset->devices_per_node);
    at->cluster->nodes = (int)nodes;
    at->cluster->devices_per_node = (int)devices;
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- keys */

/* "RATE[@LATENCY]"; latency_us stays without one. frac: what is reached of the rate. */
static enum mist_status read_link(const struct reader *at, const char *key, char *value,
                                  double frac, double times,
                                  struct mist_declared_link *out)
{
    char *latency = strchr(value, '@');
    double bytes_per_s, latency_s;
    struct mist_err why;

    if (latency)
        *latency++ = '\0';
    if (mist_parse_rate_bytes_per_s(value, &bytes_per_s, &why) != MIST_OK)
        return mist_err_set(at->err, MIST_ERR_INPUT, "cluster: %s=%.100s: %.150s", key,
                            value, why.message);
    /* slower than any wire, or a million times as fast: the unit is another one */
    if (bytes_per_s < 1e6 || bytes_per_s > 1e15)
        return mist_err_set(
            at->err, MIST_ERR_INPUT,
            "cluster: %s=%.60s can't be meant; expected a rate of 1MB/s to "
            "1000TB/s, such as 400Gb/s (bits) or 25GB/s (bytes)",
            key, value);
    if (latency && mist_parse_time_s(latency, &latency_s, &why) != MIST_OK)
        return mist_err_set(at->err, MIST_ERR_INPUT, "cluster: %s=..@%.100s: %.150s", key,
                            latency, why.message);
    if (latency && latency_s > 1)
        return mist_err_set(
            at->err, MIST_ERR_INPUT,
            "cluster: %s=..@%.60s can't be meant; expected a latency of at "
            "most 1s, such as 5us",
            key, latency);
    out->bytes_per_s = bytes_per_s * frac * times;
    if (latency)
        out->latency_us = latency_s * 1e6;
    return MIST_OK;
}

static enum mist_status read_nic(const struct reader *at, char *value)
{
    struct mist_trace_declared *declared = &at->cluster->declared;
    size_t n = strspn(value, "0123456789");
    int64_t adapters = 1;

    if (n > 0 && value[n] == 'x') {
        value[n] = '\0';
        if (!read_count(value, MAX_ADAPTERS, &adapters))
            return mist_err_set(at->err, MIST_ERR_INPUT,
                                "cluster: nic=%.60sx..: expected 1 to %d adapters of a "
                                "node, such as nic=8x400Gb/s",
                                value, MAX_ADAPTERS);
        value += n + 1;
    }
    declared->adapters = (int)adapters;
    enum mist_status status = read_link(at, "nic", value, mist_preset_shares.adapter_frac,
                                        (double)adapters, &declared->node);
    double each =
        declared->node.bytes_per_s / mist_preset_shares.adapter_frac / (double)adapters;
    if (status == MIST_OK && adapters > 1 && each > MOST_ADAPTER_BYTES_PER_S)
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster: nic=%dx%.60s: adapters of %.4g Gb/s each can't be "
                            "meant; expected a rate such as 8x400Gb/s (bits) or "
                            "8x50GB/s (bytes)",
                            (int)adapters, value, each * 8 / 1e9);
    return status;
}

static enum mist_status read_size(const struct reader *at, const char *key,
                                  const char *value, int64_t *out)
{
    struct mist_err why;
    char what[96];
    int64_t bytes;

    if (mist_parse_bytes(value, &bytes, &why) != MIST_OK)
        return mist_err_set(at->err, MIST_ERR_INPUT, "cluster: %s=%.100s: %.150s", key,
                            value, why.message);
    if (bytes == 0)
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster: %s=%.60s: expected more than 0", key, value);
    snprintf(what, sizeof what, "cluster: %s=%.60s", key, value);
    *out = bytes;
    return mist_check_memory_bytes(what, bytes, MIST_ERR_INPUT, at->err);
}

/* A limit of power, below which products go slower. */
static enum mist_status read_power(const struct reader *at, const char *value)
{
    const struct mist_preset *preset = at->preset;
    char number[MAX_TEXT];
    size_t n = strcspn(value, "W");
    double power_w;

    snprintf(number, sizeof number, "%.*s", (int)n, value);
    if (strcmp(value + n, "W") != 0 ||
        mist_parse_double(number, &power_w, NULL) != MIST_OK ||
        power_w < LEAST_POWER_FRAC * preset->power_w || power_w > preset->power_w)
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster: power=%.60s: expected %.0fW to %.0fW, which %s may "
                            "draw",
                            value, LEAST_POWER_FRAC * preset->power_w, preset->power_w,
                            preset->name);
    at->cluster->curve.product_frac *=
        pow(power_w / preset->power_w, mist_preset_shares.power_exponent);
    return MIST_OK;
}

/* "1.4G/s" of "1.4e9/s": not a data sheet's, so all of it is reached. */
static enum mist_status read_updates(const struct reader *at, const char *value)
{
    char number[MAX_TEXT];
    size_t n = strcspn(value, "kMG/");
    const char *unit = value + n;
    double scale = *unit == 'G' ? 1e9 : *unit == 'M' ? 1e6 : *unit == 'k' ? 1e3 : 1;
    double per_s;

    snprintf(number, sizeof number, "%.*s", (int)n, value);
    /* slower than any processor, or faster than memory could be: of something else */
    if (strcmp(unit + (scale > 1), "/s") != 0 ||
        mist_parse_double(number, &per_s, NULL) != MIST_OK || per_s * scale < 1e5 ||
        per_s * scale > 1e12)
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster: host-adamw=%.60s: expected 0.1M/s to 1000G/s, the "
                            "parameters that a node's processors update in a second, "
                            "such as 1.4G/s",
                            value);
    at->cluster->curve.host_adamw_elements_per_s = per_s * scale;
    return MIST_OK;
}

/* A rate without a latency, of which frac is reached. */
static enum mist_status read_rate(const struct reader *at, const char *key, char *value,
                                  double frac, double *out)
{
    struct mist_declared_link link = {0};

    if (strchr(value, '@'))
        return mist_err_set(at->err, MIST_ERR_INPUT,
                            "cluster: %s=%.60s: expected a rate alone; nic, link and "
                            "pcie have a latency",
                            key, value);
    enum mist_status status = read_link(at, key, value, frac, 1, &link);
    *out = link.bytes_per_s;
    return status;
}

/* Collectives within a node, by what sends reach. */
static void fill_rings(const struct mist_preset_wiring_shares *wiring,
                       struct mist_trace_declared *declared)
{
    double rate = declared->device.bytes_per_s / wiring->link_frac;

    declared->ring_bytes_per_s = rate * wiring->ring_frac;
    declared->switch_bytes_per_s = rate * wiring->switch_frac;
}

static enum mist_status read_key(struct reader *at, const char *key, char *value)
{
    static const char *const keys[] = {"nic",         "link", "pcie",        "memory",
                                       "host-memory", "host", "memory-rate", "host-adamw",
                                       "power",       NULL};
    struct mist_trace_declared *declared = &at->cluster->declared;
    const struct mist_preset_wiring_shares *wiring =
        &mist_preset_wirings[at->preset->wiring];
    enum mist_status status;
    int i = mist_word_find(keys, key);

    if (i < 0)
        return mist_err_set(
            at->err, MIST_ERR_INPUT,
            "cluster: unknown key %.40s; there are nic, link, pcie, host, memory, "
            "memory-rate, host-memory, host-adamw and power",
            key);
    if (at->keys_seen & 1u << i)
        return mist_err_set(at->err, MIST_ERR_INPUT, "cluster: %s= comes twice", key);
    at->keys_seen |= 1u << i;
    switch (i) {
    case 0:
        return read_nic(at, value);
    case 1:
        status = read_link(at, key, value, wiring->link_frac, 1, &declared->device);
        fill_rings(wiring, declared);
        return status;
    case 2:
        return read_link(at, key, value, mist_preset_shares.host_frac, 1,
                         &declared->host);
    case 3:
        return read_size(at, key, value, &at->cluster->device_memory_bytes);
    case 4:
        return read_size(at, key, value, &at->cluster->host_memory_bytes_per_node);
    case 5:
        return read_rate(at, key, value, mist_preset_shares.host_frac,
                         &declared->host_node_bytes_per_s);
    case 6:
        return read_rate(at, key, value, 1, &at->cluster->memory_bytes_per_s);
    case 7:
        return read_updates(at, value);
    default:
        return read_power(at, value);
    }
}

/* --------------------------------------------------------------------------- cluster */

static void fill_links(const struct mist_preset *preset,
                       struct mist_trace_declared *declared)
{
    const struct mist_preset_wiring_shares *wiring = &mist_preset_wirings[preset->wiring];

    *declared = (struct mist_trace_declared){
        .device = {preset->link_gb_per_s * 1e9 * wiring->link_frac, wiring->latency_us},
        .node = {preset->adapters * preset->adapter_gbit_per_s * 1e9 / 8 *
                     mist_preset_shares.adapter_frac,
                 mist_preset_shares.adapter_latency_us},
        .host = {preset->pcie_gb_per_s * 1e9 * mist_preset_shares.host_frac,
                 mist_preset_shares.host_latency_us},
        .host_node_bytes_per_s =
            preset->host_gb_per_s * 1e9 * mist_preset_shares.host_frac,
        .adapters = preset->adapters,
        .compute_slowdown = wiring->compute_slowdown,
        .message_slowdown = wiring->message_slowdown,
        .residual_frac = wiring->residual_frac,
    };
    fill_rings(wiring, declared);
}

/* The usual node of a preset, one of it. */
static void fill(const struct mist_preset *preset, struct mist_cluster *cluster)
{
    *cluster = (struct mist_cluster){
        .backend = MIST_TRACE_DATASHEET,
        .nodes = 1,
        .devices_per_node = preset->devices_per_node,
        .device_memory_bytes = preset->memory_mib << 20,
        .host_memory_bytes_per_node = preset->host_memory_gib << 30,
        .memory_bytes_per_s = preset->memory_gb_per_s * 1e9,
        .launch_us = mist_preset_shares.launch_us,
        .curve = {.processors = preset->processors,
                  .product_frac = preset->product_frac * preset->sustained_frac,
                  .memory_frac = mist_preset_shares.memory_frac,
                  .residual_frac = mist_preset_shares.curve_residual_frac},
    };
    snprintf(cluster->name, sizeof cluster->name, "%s", preset->name);
    snprintf(cluster->how_measured, sizeof cluster->how_measured,
             "preset, nothing measured: %s (%s), node as %s; products: %s",
             preset->device, preset->source, preset->node, preset->product_source);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        cluster->peak_flop_per_s[i] = preset->peak_tflop_per_s[i] * 1e12;
    fill_links(preset, &cluster->declared);
}

static enum mist_status read_pieces(struct reader *at)
{
    char *state, *piece = strtok_r(at->text, ",", &state);
    char *topology = piece ? strchr(piece, ':') : NULL;
    enum mist_status status = MIST_OK;

    if (topology)
        *topology++ = '\0';
    at->preset = piece ? find(piece) : NULL;
    if (!at->preset)
        return refuse_name(piece ? piece : "", !topology && !*state, at->err);
    fill(at->preset, at->cluster);
    if (topology)
        status = read_topology(at, topology);
    while (status == MIST_OK && (piece = strtok_r(NULL, ",", &state))) {
        char *value = strchr(piece, '=');
        if (!value || value == piece || !value[1])
            return mist_err_set(at->err, MIST_ERR_INPUT, "cluster: %.60s: " GRAMMAR,
                                piece);
        *value++ = '\0';
        status = read_key(at, piece, value);
    }
    return status;
}

int64_t mist_preset_runtime_bytes(const struct mist_cluster *cluster)
{
    bool is_alone = cluster->nodes == 1 && cluster->devices_per_node == 1;

    return mist_preset_shares.context_memory_bytes +
           (is_alone ? 0 : mist_preset_shares.nccl_memory_bytes);
}

enum mist_status mist_preset_parse(struct mist_trace_set *set, const char *text,
                                   struct mist_err *err)
{
    struct reader at = {.cluster = &set->cluster, .err = err};
    size_t n = strlen(text);

    mist_trace_set_init(set);
    if (n >= sizeof at.text || n == 0 || text[n - 1] == ',' || strstr(text, ",,") ||
        text[0] == ',')
        return mist_err_set(err, MIST_ERR_INPUT, "cluster %.60s: " GRAMMAR, text);
    memcpy(at.text, text, n + 1);
    enum mist_status status = read_pieces(&at);
    set->cluster.runtime_memory_bytes = mist_preset_runtime_bytes(&set->cluster);
    if (status == MIST_OK)
        status = mist_cluster_check(&set->cluster, err);
    if (status != MIST_OK)
        mist_trace_set_fini(set);
    return status;
}

bool mist_preset_resized_name(char *out, size_t size, const char *name, int nodes,
                              int devices_per_node)
{
    const char *keys = name + strcspn(name, ",");
    int n = snprintf(out, size, "%.*s:%dx%d%s", (int)strcspn(name, ":,"), name, nodes,
                     devices_per_node, keys);

    return n >= 0 && (size_t)n < size;
}

bool mist_trace_set_is_folder(const char *name)
{
    struct stat info;

    /* a rate has a '/', too, behind a '=' */
    return stat(name, &info) == 0 || memchr(name, '/', strcspn(name, "="));
}

enum mist_status mist_trace_set_open(struct mist_trace_set *set, const char *name,
                                     struct mist_err *err)
{
    return mist_trace_set_is_folder(name) ? mist_trace_set_load(set, name, err)
                                          : mist_preset_parse(set, name, err);
}

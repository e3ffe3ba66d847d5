/* Prices and what comes of them. See bill.h. */
#include "tune/bill.h"

#include "core/parse.h"

#include <math.h>
#include <string.h>

enum mist_status mist_bill_price(const struct mist_option_list *prices,
                                 const char *cluster, double *price, struct mist_err *err)
{
    size_t n_cluster = strcspn(cluster, ":,");

    *price = NAN;
    for (int i = 0; i < prices->n; i++) {
        const char *equals = strrchr(prices->items[i], '=');
        size_t n_name = equals ? (size_t)(equals - prices->items[i]) : 0;
        double value;
        if (mist_parse_double(equals ? equals + 1 : prices->items[i], &value, NULL) !=
                MIST_OK ||
            value <= 0 || (equals && n_name == 0))
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--price-per-device-hour is '%.80s'; expected a price "
                                "above 0 such as 2.5, or h100-sxm=2.5",
                                prices->items[i]);
        if (!equals ||
            (n_name == n_cluster && strncmp(prices->items[i], cluster, n_name) == 0))
            *price = value;
    }
    if (prices->n > 0 && isnan(*price))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--price-per-device-hour has no price for %.*s",
                            (int)(n_cluster < 80 ? n_cluster : 80), cluster);
    return MIST_OK;
}

struct mist_bill mist_bill_make(double n_tokens, double tokens_per_s, int32_t n_devices,
                                double price)
{
    double training_s = n_tokens / tokens_per_s;
    double device_hours = training_s / 3600 * n_devices;

    return (struct mist_bill){n_tokens, training_s, device_hours, device_hours * price};
}

enum mist_status mist_bill_check(const struct mist_bill *bill, double budget,
                                 struct mist_err *err)
{
    if (budget == 0 || bill->cost <= budget)
        return MIST_OK;
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "training on %.4g tokens costs %.4g by the best plan, --budget is "
        "%.4g",
        bill->n_tokens, bill->cost, budget);
}

void mist_bill_emit(struct mist_emit *emit, const struct mist_bill *bill, bool has_price)
{
    mist_emit_number(emit, "training_s", "training", bill->training_s);
    mist_emit_number(emit, "device_hours", "device-hours", bill->device_hours);
    if (has_price)
        mist_emit_number(emit, "cost", "cost", bill->cost);
}

/*
 * What training costs: --train-tokens tokens at the speed of a plan, on devices that are
 * rented by the hour.
 */
#ifndef MIST_TUNE_BILL_H
#define MIST_TUNE_BILL_H

#include "core/emit.h"
#include "core/options.h"
#include "core/status.h"

#include <stdint.h>

struct mist_bill {
    double n_tokens;
    double training_s; /* all tokens */
    double device_hours;
    double cost; /* in the unit of the price; NAN: no price */
};

/*
 * The price of a device-hour for a cluster as --cluster names it. prices: items "2.5" (any
 * device) and "h100-sxm=2.5" (of that preset or trace set alone), the last that fits.
 * *price is NAN without items. MIST_ERR_USAGE: an item that is no price, or none fits.
 */
MIST_MUST_CHECK enum mist_status mist_bill_price(const struct mist_option_list *prices,
                                                 const char *cluster, double *price,
                                                 struct mist_err *err);

struct mist_bill mist_bill_make(double n_tokens, double tokens_per_s, int32_t n_devices,
                                double price);

/* MIST_ERR_NO_PLAN: it is above the budget (0: any). */
MIST_MUST_CHECK enum mist_status mist_bill_check(const struct mist_bill *bill,
                                                 double budget, struct mist_err *err);

/* Adds its values; has_price: the cost, too. */
void mist_bill_emit(struct mist_emit *emit, const struct mist_bill *bill, bool has_price);

#endif

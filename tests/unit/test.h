/*
 * What every test includes, after the header it tests: cmocka with the headers that it
 * wants before it, and those of the C library that nearly all tests use.
 */
#ifndef MIST_TESTS_UNIT_TEST_H
#define MIST_TESTS_UNIT_TEST_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka hands every test a state, and few want it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif

/*
 * Where tuned algorithms are kept, and that preparing steps makes that file: on the
 * emulated CUDA backend.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "exec/bind.h"
#include "exec/cuda/tuning.h"
#include "tests/emulation/backend.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<cuda_runtime_api.h>)

static void test_path(void **state)
{
    char path[256], small[8];

    (void)state;
    unsetenv("MIST_CUDA_ALGORITHMS");
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_CACHE_HOME");
    assert_true(mist_cuda_tuning_path("NVIDIA H200", path, sizeof path));
    assert_string_equal(path, "/home/me/.cache/mist/cublaslt-nvidia-h200.json");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_true(mist_cuda_tuning_path("A/../B", path, sizeof path));
    assert_string_equal(path, "/cache/mist/cublaslt-a----b.json");
    assert_false(mist_cuda_tuning_path("NVIDIA H200", small, sizeof small));
    setenv("MIST_CUDA_ALGORITHMS", "here.json", 1);
    assert_true(mist_cuda_tuning_path("NVIDIA H200", path, sizeof path));
    assert_string_equal(path, "here.json");
    setenv("MIST_CUDA_ALGORITHMS", "", 1);
    assert_false(mist_cuda_tuning_path("NVIDIA H200", path, sizeof path));
    unsetenv("MIST_CUDA_ALGORITHMS");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(mist_cuda_tuning_path("NVIDIA H200", path, sizeof path));
}

/* Prepares a block and a head of more rows than the loss takes at once. */
static void prepare(bool tunes)
{
    const struct mist_backend *backend = mist_emulated_backend();
    struct mist_device_config config = {.arena_bytes = {4096, 0}};
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    static struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    struct mist_catalog *catalog;
    struct mist_device *device;
    struct mist_err err = {0};
    void *operators;

    assert_int_equal(mist_catalog_new(&model, &catalog, &err), MIST_OK);
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        assert_int_equal(
            mist_layer_layout_make(
                catalog, (enum mist_layer_kind)kind,
                (struct mist_layer_shape){
                    .micro_batch = 1, .seq = 16, .tp = 1, .dtype = MIST_DTYPE_BF16},
                &layouts[kind], &err),
            MIST_OK);
    assert_int_equal(backend->open_device(&config, &device, &err), MIST_OK);
    assert_int_equal(
        backend->operators->open(device, MIST_DTYPE_BF16, 0, &operators, &err), MIST_OK);
    assert_int_equal(mist_binding_prepare(layouts, MIST_N_LAYER_KINDS, &model,
                                          backend->operators, operators, tunes, &err),
                     MIST_OK);
    backend->operators->close(operators);
    mist_device_close(device);
    mist_catalog_free(catalog);
}

static void test_file(void **state)
{
    struct scratch scratch;
    char text[16384];

    (void)state;
    if (!mist_emulated_backend())
        skip();
    scratch_init(&scratch);
    scratch_path(&scratch, "new/folder/algorithms.json");
    setenv("MIST_CUDA_ALGORITHMS", scratch.path, 1);
    prepare(false); /* nothing tuned: nothing written */
    assert_int_not_equal(access(scratch.path, F_OK), 0);
    prepare(true);
    FILE *file = fopen(scratch.path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_non_null(strstr(text, "\"gpu\": \"emulated\""));
    assert_non_null(strstr(text, "\"forward\""));
    assert_non_null(strstr(text, "\"backward_weight\""));
    prepare(true); /* from the file, and into it again */
    unsetenv("MIST_CUDA_ALGORITHMS");
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s/new'", scratch.folder);
    assert_int_equal(system(command), 0);
    scratch_fini(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_skipped(void **state)
{
    (void)state;
    print_message("# skipped: CUDA's headers are not installed\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_skipped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif

/*
 * sim/model_config: a config.json that is accepted describes a model that can be had.
 * exec/hf_config: the same file beside weights that are imported.
 */
#include "exec/huggingface/hf_names.h"
#include "sim/model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/parameter_counts.h"

/* The same file beside weights: against what it says itself, and against other models. */
static void check_beside_weights(const struct mist_model *model)
{
    struct mist_err err = {0};
    struct mist_hf_config config;
    enum mist_status status = mist_hf_check_config(fuzz_folder(), model, &config, &err);

    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    FUZZ_CHECK(config.is_there, "config.json is not seen");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_model model, untouched, gpt, llama;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    if (n == 0)
        return 0;
    memset(&model, 0xa5, sizeof model);
    memset(&untouched, 0xa5, sizeof untouched);
    fuzz_write(fuzz_path(path, "config.json"), (struct fuzz_bytes){bytes, n});
    fuzz_must(mist_model_load_preset("gpt3-demo", &gpt, &err), &err);
    fuzz_must(mist_model_load_preset("llama3-8b", &llama, &err), &err);
    check_beside_weights(&gpt);
    check_beside_weights(&llama);
    enum mist_status status = mist_model_load_config(path, &model, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(memcmp(&model, &untouched, sizeof model) == 0, "out was touched");
        return 0;
    }
    fuzz_must(mist_model_check(&model, &err), &err);
    FUZZ_CHECK(count_parameters(&model) > 0, "no parameters");
    FUZZ_CHECK(model.name[0] && memchr(model.name, '\0', sizeof model.name), "no name");
    check_beside_weights(&model);
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char *const names[] = {"falcon-40b.json",   "falcon-7b.json",
                                        "falcon-rw-1b.json", "gpt2.json",
                                        "llama3-8b.json",    "llama-7b/config.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_buffer buffer = {0};
        char path[64], name[16];
        snprintf(path, sizeof path, "tests/data/configs/%s", names[i]);
        snprintf(name, sizeof name, "%zu", i);
        fuzz_add_file(&buffer, path);
        fuzz_seed(name, &buffer);
    }
}

/*
 * exec/cuda/gemm_file: choices of algorithms that were read, and one more, are read
 * again; a file that can't be parsed is made anew.
 */
#include "exec/cuda/gemm_internal.h"
#include "tests/fuzz/fuzz.h"

/* What the file needs of its library and of gemm.c. */
size_t cublasLtGetVersion(void)
{
    return 130100;
}

const char *const mist_gemm_names[MIST_CUDA_N_GEMM_PRODUCTS + 1] = {
    "forward",        "forward_bias",        "forward_gelu",    "forward_bias_gelu",
    "backward_input", "backward_input_gelu", "backward_weight", "backward_weight_bias"};

static const char device[] = "NVIDIA H200";

static void check_choices(const struct mist_cuda_gemm *gemm)
{
    for (size_t i = 0; i < gemm->n_choices; i++) {
        const struct mist_gemm_choice *choice = &gemm->choices[i];
        FUZZ_CHECK(choice->key.product >= 0 &&
                       choice->key.product < MIST_CUDA_N_GEMM_PRODUCTS &&
                       choice->key.dtype >= 0 && choice->key.dtype < MIST_N_DTYPES &&
                       choice->pick >= 0 && choice->pick <= MIST_GEMM_UNLAUNCHED &&
                       choice->key.rows >= 0 && choice->time_ns >= 0,
                   "choice %zu", i);
    }
}

/* The same choices as before and one more, and nothing to be said. */
static void check_again(const char *path, const struct mist_cuda_gemm *before)
{
    struct mist_cuda_gemm gemm = {0};
    struct mist_gemm_file *file = mist_gemm_file_open(&gemm, path, device);

    FUZZ_CHECK(file && !gemm.note[0], "%s", gemm.note);
    FUZZ_CHECK(gemm.n_choices == before->n_choices, "%zu choices, then %zu",
               before->n_choices, gemm.n_choices);
    for (size_t i = 0; i < gemm.n_choices; i++)
        FUZZ_CHECK(memcmp(&gemm.choices[i], &before->choices[i], sizeof *gemm.choices) ==
                       0,
                   "choice %zu is another", i);
    mist_gemm_file_close(file, &gemm);
    free(gemm.choices);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_cuda_gemm gemm = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "cublaslt.csv"),
               (struct fuzz_bytes){n > 0 ? bytes : (const uint8_t *)"", n});
    struct mist_gemm_file *file = mist_gemm_file_open(&gemm, path, device);
    FUZZ_CHECK(file && mist_gemm_file_is_writable(file), "%s", gemm.note);
    check_choices(&gemm);
    struct mist_gemm_choice *added = mist_gemm_choice_add(&gemm);
    FUZZ_CHECK(added, "out of memory");
    added->key.rows = 8;
    added->pick = MIST_GEMM_OTHER;
    mist_gemm_file_close(file, &gemm);
    check_again(path, &gemm);
    free(gemm.choices);
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char header[] =
        "gpu,cublaslt,product,dtype,gradient_dtype,rows,n_in,n_out,alignment_bytes,"
        "processors,choice,time_ns,algorithm,tile,split_k,reduction,swizzle,custom,"
        "stages,inner_shape,cluster_shape\n";
    static const char rows[] =
        "NVIDIA H200,130100,forward_bias,bf16,fp32,8192,2048,6144,16,0,other,301512,66,"
        "1,2,3,4,5,6,7,8\n"
        "NVIDIA H100,130100,forward,fp32,fp32,1,2,3,16,0,first,0,0,0,0,0,0,0,0,0,0\n";
    struct fuzz_buffer buffer = {0};

    fuzz_seed_text("header", header);
    fuzz_add_text(&buffer, header);
    fuzz_add_text(&buffer, rows);
    fuzz_seed("rows", &buffer);
}

/*
 * Jobs that others published, as the arguments of their frameworks: figures and flags alone,
 * typed in from the files that are named, less those of data and logs that say nothing.
 * What is open in a script (number of nodes, paths) has a value here.
 */
#ifndef MIST_TESTS_UNIT_PUBLISHED_ARGS_H
#define MIST_TESTS_UNIT_PUBLISHED_ARGS_H

#include "sim/model/model.h"

struct published {
    const char *source;
    enum mist_framework_name framework;
    const char *text;
    const char *refused; /* the argument that can't be expressed; NULL: it is read as */
    int n_devices;       /* of the cluster */
    int tp, pp, dp, micro_batch, n_micro_batches, zero;
    int recompute; /* 0 none, 1 selective, 2 full, 3 every second block */
    int chunks;
};

#define MEGATRON   MIST_FRAMEWORK_MEGATRON
#define DEEPSPEED  MIST_FRAMEWORK_DEEPSPEED
#define TORCHTITAN MIST_FRAMEWORK_TORCHTITAN

#define MEGATRON_LOGS                                                                    \
    " --split 949,50,1 --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5"             \
    " --weight-decay 1e-2 --clip-grad 1.0 --lr-warmup-fraction .01 --log-interval 100"   \
    " --save-interval 10000 --eval-interval 1000 --eval-iters 10"                        \
    " --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --data-impl mmap"        \
    " --distributed-backend nccl\n"
#define GPT_345M                                                                         \
    " --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"     \
    " --max-position-embeddings 1024"
#define SC21                                                                             \
    " --seq-length 2048 --max-position-embeddings 2048 --DDP-impl local --fp16"          \
    " --loss-scale 8192 --train-iters 500 --activations-checkpoint-method uniform"
#define TITAN_HEAD                                                                       \
    "# a preset\n[job]\ndump_folder = \"./outputs\"\n\n[profiling]\n"                    \
    "enable_profiling = true\nprofile_freq = 100\n[metrics]\nlog_freq = 10\n"            \
    "[optimizer]\nname = \"AdamW\"\nlr = 3e-4  # of it\n"
#define DS_FP16                                                                          \
    "\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"loss_scale_window\": 500, "      \
    "\"hysteresis\": 2, \"min_loss_scale\": 1}"

static const struct published published[] = {
    /* ------------------------------------- NVIDIA/Megatron-LM, examples/ */
    {"gpt3/train_gpt3_175b_distributed.sh, on 16 nodes", MEGATRON,
     "torchrun --nproc_per_node 8 --nnodes 16 --master_addr localhost --master_port 6000 "
     "pretrain_gpt.py \\\n"
     "    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \\\n"
     "    --seq-length 2048 --max-position-embeddings 2048 \\\n"
     "    --attention-backend auto # or flash, fused, unfused, local\n"
     "    --micro-batch-size 1 --global-batch-size 1536 \\\n"
     "    --rampup-batch-size 16 16 5859375 --train-iters 500000 --adam-beta1 0.9 \\\n"
     "    --adam-beta2 0.95 --init-method-std 0.006 --fp16 \\\n"
     "    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16" MEGATRON_LOGS,
     NULL, 8, 8, 16, 1, 1, 1536, 0, 0, 1},
    {"pretrain_gpt3_175B.sh (2021), 128 nodes", MEGATRON,
     "srun -l python -u pretrain_gpt.py --tensor-model-parallel-size 8 "
     "--pipeline-model-parallel-size 16 --num-layers 96 --hidden-size 12288 "
     "--num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 "
     "--micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 "
     "--train-samples 146484375 --lr-decay-samples 126953125 --lr-warmup-samples 183105 "
     "--data-path 0.2 first 0.3 second 0.5 third --fp16 "
     "--checkpoint-activations" MEGATRON_LOGS,
     NULL, 1024, 8, 16, 8, 1, 192, 0, 2, 1},
    {"pretrain_gpt.sh", MEGATRON,
     "python pretrain_gpt.py" GPT_345M " --micro-batch-size 4 --global-batch-size 8 "
     "--train-iters 500000 --checkpoint-activations --fp16" MEGATRON_LOGS,
     NULL, 1, 1, 1, 1, 4, 2, 0, 2, 1},
    {"pretrain_gpt_distributed.sh", MEGATRON,
     "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 --node_rank 0 "
     "pretrain_gpt.py" GPT_345M " --micro-batch-size 8 --global-batch-size 64 "
     "--checkpoint-activations --fp16" MEGATRON_LOGS,
     NULL, 1, 1, 1, 8, 8, 1, 0, 2, 1},
    {"pretrain_gpt_distributed_with_mp.sh", MEGATRON,
     "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 --node_rank 0 "
     "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size "
     "2" GPT_345M " --micro-batch-size 4 --global-batch-size 16 --checkpoint-activations "
     "--fp16" MEGATRON_LOGS,
     NULL, 1, 2, 2, 2, 4, 2, 0, 2, 1},
    {"gpt3/train_gpt3_857m_distributed.sh", MEGATRON,
     "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 "
     "--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
     "--max-position-embeddings 2048 --attention-backend auto --micro-batch-size 8 "
     "--global-batch-size 128 --init-method-std 0.006 --fp16 "
     "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1" MEGATRON_LOGS,
     NULL, 1, 8, 1, 1, 8, 16, 0, 0, 1},
    {"gpt3/train_gpt3_distributed.sh", MEGATRON,
     "torchrun --nproc_per_node 2 --nnodes 1 pretrain_gpt.py --num-layers 6 "
     "--hidden-size 256 --num-attention-heads 4 --seq-length 512 "
     "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 2 "
     "--train-iters 7 #--fp16\n --mock-data --tensor-model-parallel-size 2 "
     "--pipeline-model-parallel-size 1" MEGATRON_LOGS,
     NULL, 1, 2, 1, 1, 1, 2, 0, 0, 1},
    {"academic_paper_scripts/sc21/run_figure_13.sh, 2 stages", MEGATRON,
     "--tensor-model-parallel-size 32 --pipeline-model-parallel-size 2 "
     "--micro-batch-size 1 --global-batch-size 32 --num-layers 32 --hidden-size 20480 "
     "--num-attention-heads 128" SC21,
     NULL, 64, 32, 2, 1, 1, 32, 0, 2, 1},
    {"academic_paper_scripts/sc21/run_figure_13.sh, 32 stages", MEGATRON,
     "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 32 "
     "--micro-batch-size 1 --global-batch-size 128 --num-layers 32 --hidden-size 20480 "
     "--num-attention-heads 128" SC21,
     NULL, 64, 2, 32, 1, 1, 128, 0, 2, 1},
    {"academic_paper_scripts/sc21/run_figure_18.sh", MEGATRON,
     "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 12 "
     "--num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 1 "
     "--global-batch-size 12 --num-layers 96 --hidden-size 12288 "
     "--num-attention-heads 96" SC21,
     NULL, 96, 8, 12, 1, 1, 12, 0, 2, 4},
    {"llama/train_llama3_8b_h100_fp8.sh", MEGATRON,
     "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --use-mcore-models "
     "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
     "--num-attention-heads 32 --group-query-attention --num-query-groups 8 "
     "--kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 "
     "--position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 "
     "--attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --attention-backend fused "
     "--apply-layernorm-1p --untie-embeddings-and-output-weights --disable-bias-linear "
     "--micro-batch-size 1 --global-batch-size 128 --bf16 --grad-reduce-in-bf16 "
     "--cross-entropy-loss-fusion --manual-gc --fp8-format hybrid "
     "--tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel "
     "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
     "--mock-data --tokenizer-type NullTokenizer --vocab-size 128256\n",
     "--normalization LayerNorm", 8, 0, 0, 0, 0, 0, 0, 0, 0},
    {"mixtral/train_mixtral_8x7b_distributed.sh", MEGATRON,
     "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --use-mcore-models "
     "--disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 "
     "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
     "--num-attention-heads 32 --attention-dropout 0.0 --hidden-dropout 0.0 "
     "--normalization RMSNorm --position-embedding-type rope --swiglu "
     "--untie-embeddings-and-output-weights --group-query-attention "
     "--num-query-groups 8 --no-masked-softmax-fusion --no-position-embedding "
     "--rotary-base 1000000 --num-experts 8 --moe-router-topk 2\n",
     "--num-experts", 32, 0, 0, 0, 0, 0, 0, 0, 0},
    {"azure/run-175b.sh", MEGATRON,
     "deepspeed --num_nodes=1 pretrain_gpt.py --tensor-model-parallel-size 1\n",
     "--num_nodes", 8, 0, 0, 0, 0, 0, 0, 0, 0},
    {"retro/train_retro_2b_distributed.sh", MEGATRON,
     "torchrun --nproc_per_node 8 --nnodes 1 pretrain_retro.py --num-layers 32 "
     "--hidden-size 2048 --num-attention-heads 32\n",
     "pretrain_retro.py", 8, 0, 0, 0, 0, 0, 0, 0, 0},

    /* ------------------------------------------------- pytorch/torchtitan */
    {"models/llama3/train_configs/llama3_8b.toml (2025)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
     "tokenizer_path = \"./assets/tokenizer.model\"\n# converters = \"float8\"\n"
     "[lr_scheduler]\nwarmup_steps = 200\n"
     "[training]\nbatch_size = 1\nseq_len = 8192\nmax_norm = 1.0\nsteps = 1000\n"
     "compile = false\ndataset = \"c4\"\n"
     "[parallelism]\ndata_parallel_replicate_degree = 1\n"
     "data_parallel_shard_degree = -1\ntensor_parallel_degree = 1\n"
     "pipeline_parallel_degree = 1\ncontext_parallel_degree = 1\n"
     "[checkpoint]\nenable_checkpoint = false\ninterval = 500\n"
     "async_mode = \"disabled\" # [\"disabled\", \"async\"]\n"
     "[activation_checkpoint]\nmode = 'selective'  # ['none', 'selective', 'full']\n"
     "selective_ac_option = 'op'\n"
     "[float8]\nenable_fsdp_float8_all_gather = false\nfilter_fqns = \"output\"\n",
     NULL, 64, 1, 1, 64, 1, 1, 3, 1, 1},
    {"models/llama3/train_configs/llama3_70b.toml (2025)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama3\"\nflavor = \"70B\"\n"
     "hf_assets_path = \"./assets/hf/Llama-3.1-70B\"\n# converters = [\"float8\"]\n"
     "[training]\nlocal_batch_size = 8\nseq_len = 8192\n"
     "[parallelism]\ndata_parallel_replicate_degree = 1\n"
     "data_parallel_shard_degree = -1\ntensor_parallel_degree = 8  # 8-way TP\n"
     "pipeline_parallel_degree = 1\ncontext_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = \"full\"\n"
     "[compile]\nenable=false\ncomponents = [\"model\", \"loss\"]\n"
     "[float8]\nfilter_fqns = [\"output\"]\n[validation]\nenabled = false\n",
     NULL, 64, 8, 1, 8, 8, 1, 3, 2, 1},
    {"models/llama3/train_configs/llama3_405b.toml (2025)",
     MIST_FRAMEWORK_TORCHTITAN_COMPILED,
     TITAN_HEAD "[model]\nname = \"llama3\"\nflavor = \"405B\"\nconverters = \"float8\"\n"
                "[training]\nbatch_size = 2\nseq_len = 8192\ncompile = true\n",
     NULL, 128, 1, 1, 128, 2, 1, 3, 3, 1},
    {"train_configs/llama3_8b.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama3\"\nflavor = \"8B\"\nnorm_type = \"rmsnorm\"\n"
     "[training]\nseed=2020\nbatch_size = 1\nseq_len = 8192\nwarmup_steps = 200\n"
     "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1\n"
     "tensor_parallel_degree = 1\ncompile = false\n"
     "[experimental]\npipeline_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'\n"
     "[float8]\nenable_float8_linear = false\n",
     NULL, 64, 1, 1, 64, 1, 1, 3, 1, 1},
    {"train_configs/llama3_70b.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama3\"\nflavor = \"70B\"\nnorm_type = \"rmsnorm\"\n"
     "[training]\nbatch_size = 8\nseq_len = 8192\ndata_parallel_degree = -1\n"
     "tensor_parallel_degree = 8  # 8-way TP\ncompile = false\n"
     "[experimental]\npipeline_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = 'full'\n[float8]\nenable_float8_linear = false\n",
     NULL, 64, 8, 1, 8, 8, 1, 3, 2, 1},
    {"train_configs/test_pp_split_points.toml (2024), as 8B", TORCHTITAN,
     TITAN_HEAD "[model]\nname = \"llama3\"\nflavor = \"8B\"\nnorm_type = \"rmsnorm\"\n"
                "[training]\nbatch_size = 8\nseq_len = 2048\n[experimental]\n"
                "pipeline_parallel_degree = 1\nenable_async_tensor_parallel = false\n"
                "pipeline_parallel_split_points = \"layers.2,layers.4,layers.6\"\n",
     "experimental.pipeline_parallel_split_points", 8, 0, 0, 0, 0, 0, 0, 0, 0},
    {"train_configs/llama3_405b.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama3\"\nflavor = \"405B\"\nnorm_type = \"rmsnorm\"\n"
     "[training]\nbatch_size = 1\nseq_len = 8192\ndata_parallel_degree = -1\n"
     "tensor_parallel_degree = 8  # 8-way TP\nenable_float8_linear = false\n"
     "compile = false\n[experimental]\npipeline_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = 'full' # ['none', 'selective', 'full']\n",
     NULL, 128, 8, 1, 16, 1, 1, 3, 2, 1},
    {"train_configs/llama2_7b.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama2\"\nflavor = \"7B\"\nnorm_type = \"rmsnorm\"\n"
     "[training]\nbatch_size = 8\nseq_len = 2048\ndata_parallel_degree = -1\n"
     "tensor_parallel_degree = 1\ncompile = false\n[dataset]\nbos_token = 0\n"
     "[experimental]\npipeline_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'\n",
     NULL, 8, 1, 1, 8, 8, 1, 3, 1, 1},
    {"train_configs/llama2_70b.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama2\"\nflavor = \"70B\"\nnorm_type = \"rmsnorm\"\n"
     "[training]\nbatch_size = 16\nseq_len = 4096\ndata_parallel_degree = -1\n"
     "tensor_parallel_degree = 8\ncompile = false\n"
     "[experimental]\npipeline_parallel_degree = 1\n"
     "[activation_checkpoint]\nmode = 'full'\n[float8]\nenable_float8_linear = false\n",
     NULL, 64, 8, 1, 8, 16, 1, 3, 2, 1},
    {"configs/llama3_8b-8xb200-8k.toml", TORCHTITAN,
     TITAN_HEAD "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = []\n"
                "[training]\nlocal_batch_size = 3\nseq_len = 8192\ndtype = \"bfloat16\"\n"
                "mixed_precision_reduce = \"bfloat16\"\n",
     "training.dtype", 8, 0, 0, 0, 0, 0, 0, 0, 0},
    {"train_configs/debug_model.toml (2024)", TORCHTITAN,
     TITAN_HEAD
     "[model]\nname = \"llama\"\nflavor = \"debugmodel\"\n"
     "[training]\nbatch_size = 8\nseq_len = 2048\nsequence_parallel_degree = 1\n",
     "model.name", 8, 0, 0, 0, 0, 0, 0, 0, 0},

    /* ------------- microsoft/DeepSpeedExamples, microsoft/Megatron-DeepSpeed */
    {"Megatron-LM/scripts/ds_zero2_config.json", DEEPSPEED,
     "{\"train_batch_size\":16, \"gradient_accumulation_steps\": 1, \"steps_per_print\": "
     "1,"
     "\"zero_optimization\": {\"stage\":2}, \"optimizer\": {\"type\": \"Adam\", "
     "\"params\": {\"lr\": 0.00015}}, \"gradient_clipping\": 1.0, " DS_FP16
     ", \"activation_checkpointing\": {\"partition_activations\":true, "
     "\"contiguous_memory_optimization\":false}, \"wall_clock_breakdown\": false}",
     NULL, 4, 1, 1, 4, 4, 1, 2, 0, 1},
    {"Megatron-LM/scripts/ds_zero-offload_10B_config.json", DEEPSPEED,
     "{\"train_batch_size\":30, \"gradient_accumulation_steps\": 3,\n"
     "\"zero_optimization\": {\"stage\":2, \"cpu_offload\":true,\n"
     "\"comm_overlap\":true, \"contiguous_gradients\": true}, " DS_FP16 "}",
     "zero_optimization.comm_overlap", 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_3_config.json", DEEPSPEED,
     "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 1, "
     "\"steps_per_print\": 10, \"zero_optimization\": {\"stage\": 3, "
     "\"stage3_max_live_parameters\": 1.0e+09, \"stage3_max_reuse_distance\": 1.0e+09, "
     "\"stage3_prefetch_bucket_size\": 6.039798e+07, \"reduce_bucket_size\": "
     "6.710886e+07,"
     "\"contiguous_gradients\": true}, \"gradient_clipping\": 1.0, " DS_FP16
     ", \"wall_clock_breakdown\": true, \"zero_allow_untested_optimizer\": false}",
     NULL, 8, 1, 1, 8, 8, 1, 3, 0, 1},
    {"Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_infinity_config.json", DEEPSPEED,
     "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1,\n"
     "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true,\n"
     "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme_data\"}}}",
     "zero_optimization.offload_optimizer.device", 8, 0, 0, 0, 0, 0, 0, 0, 0},
    {"Megatron-LM-v1.1.5-ZeRO3/examples/ds_config.json", DEEPSPEED,
     "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 1, "
     "\"steps_per_print\": 10, \"gradient_clipping\": 1.0, " DS_FP16
     ", \"wall_clock_breakdown\": true}",
     NULL, 8, 1, 1, 8, 8, 1, 0, 0, 1},
    {"autotuning/hf/dsconfigs/ds_config_fp16_z3.json, micro-batch of 2", DEEPSPEED,
     "{\"train_micro_batch_size_per_gpu\": 2, \"train_batch_size\": \"auto\", "
     "\"zero_optimization\": {\"stage\": 3}, \"fp16\": {\"enabled\": true}}",
     NULL, 8, 1, 1, 8, 2, 1, 3, 0, 1},
    {"ds_zero2_config_bf16.json", DEEPSPEED,
     "{\"train_batch_size\": 96, \"gradient_accumulation_steps\": 1, "
     "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.00015, "
     "\"weight_decay\": 1e-2}}, \"zero_optimization\": {\"stage\": 2}, "
     "\"zero_allow_untested_optimizer\": true, \"communication_data_type\": \"bfp16\", "
     "\"fp16\": {\"enabled\": false, \"loss_scale\": 0}, \"bfloat16\": {\"enabled\": "
     "true,"
     "\"loss_scale\": 1.0}, \"activation_checkpointing\": {\"partition_activations\": "
     "true}, \"flops_profiler\": {\"enabled\": true, \"output_file\": null}}",
     NULL, 8, 1, 1, 8, 12, 1, 2, 0, 1},
    {"examples_deepspeed/sequence_parallel/ds_config_gbs16_mbs1_log1_zero3.json",
     DEEPSPEED,
     "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 1, "
     "\"zero_optimization\": {\"stage\": 3}, \"prescale_gradients\": false, " DS_FP16 "}",
     NULL, 8, 1, 1, 8, 1, 2, 3, 0, 1},
    {"examples_deepspeed/rebase/ds_config_gbs256_mbs32_log1_zero1.json", DEEPSPEED,
     "{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 32, "
     "\"zero_optimization\": {\"stage\": 1}, \"prescale_gradients\": false, " DS_FP16 "}",
     NULL, 8, 1, 1, 8, 32, 1, 1, 0, 1},
    {"Megatron-DeepSpeed/ds_config.json", DEEPSPEED,
     "{\"train_batch_size\" : 16, \"train_micro_batch_size_per_gpu\": 16, "
     "\"gradient_accumulation_steps\": 1, \"zero_optimization\": {\"stage\": 3, "
     "\"stage3_max_live_parameters\": 3e9, \"contiguous_gradients\": true, "
     "\"overlap_comm\": true, \"sub_group_size\": 1e9, \"offload_optimizer\": {"
     "\"device\": \"cpu\", \"buffer_count\": 4, \"pin_memory\": true}}, " DS_FP16
     ", \"aio\": {\"block_size\": 1048576}}",
     NULL, 8, 1, 1, 1, 16, 1, 3, 0, 1},
    {"bing_bert/deepspeed_bsz64k_lamb_config_seq128.json", DEEPSPEED,
     "{\"train_batch_size\": 65536, \"train_micro_batch_size_per_gpu\": 64,\n"
     "\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": 11e-3}}}",
     "optimizer.type", 8, 0, 0, 0, 0, 0, 0, 0, 0},
};

#endif

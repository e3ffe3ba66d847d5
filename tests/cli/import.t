#!/bin/sh
# Weights of Hugging Face: a config.json that describes another function than the plan's model is refused by
# key, what was found and what was expected; weights that are not finite by tensor.
. tests/cli/lib.sh

tiny plan.json > gpt.json
tiny plan2.json > two.json
edit gpt.json 's/"family": "gpt"/"family": "llama"/; s/"n_kv_heads": 4/"n_kv_heads": 2/; s/"max_seq": [0-9]*/"max_seq": 0/
    s/"has_bias": true/"has_bias": false/; s/"rope_theta": [0-9.]*/"rope_theta": 10000.0/' > llama.json
seq 1 2000 > text.txt
edit llama.json 's/"rope_theta": [0-9.]*/"rope_theta": 10000.0, "rope_scaling": "linear", "rope_factor": 2.0/' > scaled.json
edit gpt.json 's/"rope_theta": [0-9.]*/"rope_theta": 0.0, "exact_gelu": true/' > exact.json
edit llama.json 's/"family": "llama"/"family": "qwen2"/' > qwen2.json
edit gpt.json 's/"family": "gpt"/"family": "gpt_neox"/; s/"max_seq": [0-9]*/"max_seq": 0/
    s/"rope_theta": [0-9.]*/"rope_theta": 10000.0, "rotary_dim": 2/' > neox.json
edit neox.json 's/"rotary_dim": 2/"rotary_dim": 8/' > whole.json # heads have 8
edit llama.json 's/"family": "llama"/"family": "qwen3"/' > qwen3.json
edit llama.json 's/"family": "llama"/"family": "gemma"/' > gemma.json
edit neox.json 's/"family": "gpt_neox"/"family": "nemotron"/; s/"n_kv_heads": 4/"n_kv_heads": 2/
    s/"has_bias": true/"has_bias": false/; s/"rotary_dim": 2/"rotary_dim": 4/' > nemotron.json
for family in gpt llama scaled exact qwen2 qwen3 gemma neox whole nemotron; do
    begin "weights of a $family model, out and in again"
    run mist-exec $family.json --data text.txt -q --iterations 1 --export $family
    expect_exit 0
    run mist-exec $family.json --data text.txt --iterations 1 --lr 0 --import $family --export again
    expect_exit 0
    expect_same $family/model.safetensors again/model.safetensors
    ! grep -q 'config' "$err" || fail "$(cat "$err")"
    rm -r again
done

# differs FAMILY REGEX SED_SCRIPT: its config.json, edited.
differs() {
    cp -R "$1" edited
    edit "$1/config.json" "$3" > edited/config.json
    refuse "$1: $3" 3 "^mist-exec: edited/config\\.json:[0-9:]+ $2" mist-exec "$1.json" --data text.txt -q --import edited
    rm -r edited
}
differs gpt 'n_head is 8, the plan.s model has 4$' 's/"n_head": 4/"n_head": 8/'
differs gpt 'n_layer is 3, the plan.s model has 2$' 's/"n_layer": 2/"n_layer": 3/'
differs gpt 'n_embd is 64, the plan.s model has 32$' 's/"n_embd": 32/"n_embd": 64/'
differs gpt 'n_inner is 64, the plan.s model has 128$' 's/"n_inner": 128/"n_inner": 64/'
differs gpt 'vocab_size is 300, the plan.s model has 256$' 's/"vocab_size": 256/"vocab_size": 300/'
differs gpt 'n_positions is 99, the plan.s model has' 's/"n_positions": [0-9]*/"n_positions": 99/'
differs gpt 'layer_norm_epsilon is 1e-06, the plan.s model has 1e-05$' 's/"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 1e-6/'
differs gpt 'activation_function asks for the exact form of GELU, the plan.s model has the tanh$' 's/gelu_new/gelu/'
differs gpt 'tie_word_embeddings is true, the plan.s model has false$' 's/"tie_word_embeddings": false/"tie_word_embeddings": true/'
differs gpt 'scale_attn_by_inverse_layer_idx asks for what a run does not compute$' \
    's/"scale_attn_by_inverse_layer_idx": false/"scale_attn_by_inverse_layer_idx": true/'
differs llama 'num_attention_heads is 8, the plan.s model has 4$' \
    's/"num_attention_heads": 4/"num_attention_heads": 8/; s/"head_dim": 8/"head_dim": 4/'
differs llama 'num_key_value_heads is 4, the plan.s model has 2$' 's/"num_key_value_heads": 2/"num_key_value_heads": 4/'
differs llama 'intermediate_size is 64, the plan.s model has 128$' 's/"intermediate_size": 128/"intermediate_size": 64/'
differs llama 'rms_norm_eps is 1e-06, the plan.s model has 1e-05$' 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 1e-6/'
differs llama 'rope_theta is 500000, the plan.s model has 10000$' 's/"rope_theta": [^,]*/"rope_theta": 500000.0/'
differs llama 'missing key "low_freq_factor"' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "rope_theta"/'
differs llama 'rope_scaling is "linear", the plan.s model has "default"$' \
    's/"rope_theta"/"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta"/'
differs llama 'rope_scaling asks for what a run does not compute$' \
    's/"rope_theta"/"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "rope_theta"/'
differs llama 'rope_theta is 500000, the plan.s model has 10000$' \
    's/"rope_theta": [^,]*/"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}/'
differs llama 'attention_bias asks for what a run does not compute$' 's/"attention_bias": false/"attention_bias": true/'
differs llama 'hidden_act: "gelu" is not supported' 's/"silu"/"gelu"/'
differs llama 'tie_word_embeddings is true, the plan.s model has false$' 's/"tie_word_embeddings": false/"tie_word_embeddings": true/'
refuse 'another family' 3 '^mist-exec: llama/config\.json:[0-9:]+ is a llama model, the plan.s is gpt$' \
    mist-exec gpt.json --data text.txt -q --import llama
edit llama.json 's/"rope_theta": [0-9.]*/"rope_theta": 10000.0, "window": 2, "unsupported": "attention_bias"/' > asks.json
refuse 'a plan of what is not computed' 3 '^mist-exec: asks\.json: the model .* does not compute: sliding_window, attention_bias$' \
    mist-exec asks.json --data text.txt -q
begin 'what is said in another way, or says nothing of the function'
cp -R llama edited
edit llama/config.json 's/"rope_theta": [^,]*/"rope_scaling": null, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "attention_dropout": 0.1/' \
    > edited/config.json
run mist-exec llama.json --data text.txt --iterations 1 --import edited/model.safetensors
expect_exit 0
expect_once '^mist-exec: edited/model\.safetensors: config\.json asks for dropout \(attention_dropout\): runs have none$'
begin 'no config.json: that is said'
rm edited/config.json
run mist-exec llama.json --data text.txt --iterations 1 --import edited
expect_exit 0
expect_once '^mist-exec: edited: no config\.json: whether heads, .* is not known$'
rm -r edited

# poison NAME: one value in the middle of this tensor of gpt/ becomes the infinity, in edited/.
poison() {
    cp -R gpt edited
    perl -MJSON::PP -e '
        open(my $file, "+<:raw", "edited/model.safetensors") or die;
        read $file, my $size, 8;
        read $file, my $header, unpack("Q<", $size);
        my ($begin, $end) = @{JSON::PP->new->decode($header)->{$ARGV[0]}{data_offsets}};
        seek $file, 8 + unpack("Q<", $size) + $begin + int(($end - $begin) / 8) * 4, 0;
        print $file pack "f<", "inf";' "$1" || echo 'Bail out! no tensor'
}
for tensor in transformer.wte.weight transformer.h.1.mlp.c_fc.weight transformer.h.0.attn.c_attn.bias lm_head.weight; do
    poison $tensor
    begin "not finite: $tensor"
    run mist-exec gpt.json --data text.txt -q --iterations 1 --import edited
    expect_exit 3
    expect_stderr "^mist-exec: edited/model\\.safetensors: tensor $tensor has values that are not finite\$"
    expect_one_line
    expect_stdout_empty
    nothing_written
    rm -r edited
done
poison transformer.h.1.mlp.c_fc.weight
begin 'not finite, on the one of two ranks that has the layer'
run mpirun --oversubscribe -n 2 "$MIST_BUILD/mist-exec" two.json --data text.txt -q --iterations 1 --import edited
expect_exit 3
expect_once '^mist-exec: edited/model\.safetensors: tensor transformer\.h\.1\.mlp\.c_fc\.weight has values that are not finite$'
finish

#!/usr/bin/python3
"""Makes the reference that tests compare loss, gradients and training steps with.

    /usr/bin/python3 tests/data/reference/make_reference.py      (Debian: python3-torch)

Four tiny models written in plain PyTorch, gradients by its autograd, steps by its AdamW:
nothing is shared with the C code but the formulas below for weights and tokens, which
are integer hashes, so that neither has to be stored. Every weight is exact in fp32.
One JSON file per model, read by tests/unit/reference.h:

    config              the model's dimensions, batch and seq
    loss                mean cross-entropy, float64
    loss_fp32           the same computed in float32
    losses              before each of N_STEPS steps of AdamW on the one batch, and after
                        the last; float64
    gradients[]         of every parameter, float64:
        name, n         "layers.1.qkv.weight"; elements
        norm            L2 norm
        error_fp32      L2 norm of (float32 run - float64 run) / norm
        projections     N_PROJECTIONS dot products with vectors of signs: the root mean
                        square of their errors estimates the L2 norm of the whole
                        gradient's error, whichever elements it is in
        at, values      sampled elements (all if there are few)

Formulas, in 32-bit unsigned arithmetic:
    seed(name)    FNV-1a of the bytes of name
    hash(name, k) mix(seed(name) + k * 0x9e3779b9), mix = Wellons' "lowbias32"
    unit(name, k) (hash >> 12) / 2^20 - 1/2
    weights       norms 1 + unit / 4; biases unit / 4; wte, wpe unit; matrices unit / 4
    stream        of sample b: element k = b * (seq + 1) + i of "tokens", hash = 2^16 u + v:
                  floor(u * v * vocab / 2^32): low ids are frequent, so that rows repeat.
                  tokens are the stream's first seq elements, targets the last seq.
    signs         projection j: bit 31 - j of hash("signs", k) set: -1, else +1
"""
import json
import os

import numpy as np
import torch
import torch.nn.functional as F

N_STEPS, N_PROJECTIONS, N_SAMPLES = 5, 16, 96

ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1  # of matrices and embeddings, not of norms and biases

# Odd sizes on purpose: nothing is a multiple of a vector or a block.
MODELS = {
    "gpt": dict(family="gpt", n_layers=3, hidden=48, n_heads=4, n_kv_heads=4, ffn=190,
                vocab=257, max_seq=40, has_bias=True, ties_embeddings=True,
                norm_epsilon=1e-5, rope_theta=0.0, batch=3, seq=37),
    "llama": dict(family="llama", n_layers=3, hidden=48, n_heads=6, n_kv_heads=2, ffn=114,
                  vocab=257, max_seq=0, has_bias=False, ties_embeddings=False,
                  norm_epsilon=1e-6, rope_theta=10000.0, batch=2, seq=67),
    "falcon": dict(family="falcon", n_layers=3, hidden=50, n_heads=5, n_kv_heads=1,
                   ffn=200, vocab=257, max_seq=0, has_bias=False, ties_embeddings=False,
                   norm_epsilon=1e-5, rope_theta=10000.0, batch=3, seq=33),
    # As Falcon 40B: grouped queries, and with them a norm for each branch.
    "falcon_grouped": dict(family="falcon", n_layers=3, hidden=48, n_heads=6,
                           n_kv_heads=3, ffn=130, vocab=257, max_seq=0, has_bias=True,
                           ties_embeddings=True, norm_epsilon=1e-5, rope_theta=10000.0,
                           batch=2, seq=29),
}


# --------------------------------------------------------------------------- formulas

def seed(name):
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


def hashes(name, n):
    x = np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed(name))
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def weights(name, shape):
    unit = (hashes(name, int(np.prod(shape))) >> np.uint32(12)) / 2.0**20 - 0.5
    if name in ("wte", "wpe"):
        value = unit
    elif "norm" in name and name.endswith("weight"):
        value = 1 + unit / 4
    else:
        value = unit / 4
    assert (value == value.astype(np.float32)).all()
    return torch.tensor(value.reshape(shape), dtype=torch.float32)


def batch_of(c):
    h = hashes("tokens", c["batch"] * (c["seq"] + 1)).astype(np.uint64)
    product = (h >> np.uint64(16)) * (h & np.uint64(0xFFFF))
    stream = (product * np.uint64(c["vocab"]) >> np.uint64(32)).astype(np.int64)
    stream = torch.tensor(stream).reshape(c["batch"], c["seq"] + 1)
    return stream[:, :-1], stream[:, 1:]


# ------------------------------------------------------------------------------ models

def has_two_norms(c):
    return c["family"] != "falcon" or 1 < c["n_kv_heads"] < c["n_heads"]


def shapes(c):
    """Names and shapes of the parameters; linear weights are [out, in]."""
    h, f, head_dim = c["hidden"], c["ffn"], c["hidden"] // c["n_heads"]
    is_llama = c["family"] == "llama"
    out = {"wte": (c["vocab"], h)}

    def norm(name):
        out[name + ".weight"] = (h,)
        if not is_llama:
            out[name + ".bias"] = (h,)

    def linear(name, n_out, n_in):
        out[name + ".weight"] = (n_out, n_in)
        if c["has_bias"]:
            out[name + ".bias"] = (n_out,)

    if c["max_seq"]:
        out["wpe"] = (c["max_seq"], h)
    for i in range(c["n_layers"]):
        at = f"layers.{i}."
        norm(at + "norm1")
        linear(at + "qkv", (c["n_heads"] + 2 * c["n_kv_heads"]) * head_dim, h)
        linear(at + "proj", h, h)
        if has_two_norms(c):
            norm(at + "norm2")
        linear(at + "up", 2 * f if is_llama else f, h)  # Llama: gate, then up
        linear(at + "down", h, f)
    norm("norm")
    if not c["ties_embeddings"]:
        out["head.weight"] = (c["vocab"], h)
    return out


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rope(x, theta):
    """x [batch, heads, seq, head_dim], as in Hugging Face's Llama and Falcon."""
    seq, dim = x.shape[-2:]
    frequencies = theta ** -(torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    angles = torch.outer(torch.arange(seq, dtype=x.dtype), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


class Model:
    def __init__(self, config, params):
        self.c, self.p = config, params

    def norm(self, x, name):
        eps, weight = self.c["norm_epsilon"], self.p[name + ".weight"]
        if self.c["family"] == "llama":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
        return F.layer_norm(x, weight.shape, weight, self.p[name + ".bias"], eps)

    def linear(self, x, name):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def attention(self, x, at):
        c, (batch, seq, h) = self.c, x.shape
        heads, kv_heads, dim = c["n_heads"], c["n_kv_heads"], h // c["n_heads"]
        packed = self.linear(x, at + "qkv")
        q, k, v = packed.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=-1)
        q, k, v = (t.view(batch, seq, -1, dim).transpose(1, 2) for t in (q, k, v))
        if c["rope_theta"]:
            q, k = rope(q, c["rope_theta"]), rope(k, c["rope_theta"])
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / dim**0.5
        future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        out = torch.softmax(scores, dim=-1) @ v
        return self.linear(out.transpose(1, 2).reshape(batch, seq, h), at + "proj")

    def mlp(self, x, at):
        x = self.linear(x, at + "up")
        if self.c["family"] == "llama":
            gate, up = x.chunk(2, dim=-1)
            x = F.silu(gate) * up
        else:
            x = F.gelu(x, approximate="tanh")
        return self.linear(x, at + "down")

    def block(self, x, at):
        n1 = self.norm(x, at + "norm1")
        if self.c["family"] == "falcon":
            n2 = self.norm(x, at + "norm2") if has_two_norms(self.c) else n1
            return x + self.attention(n1, at) + self.mlp(n2, at)
        x = x + self.attention(n1, at)
        return x + self.mlp(self.norm(x, at + "norm2"), at)

    def loss(self, tokens, targets):
        x = F.embedding(tokens, self.p["wte"])
        if "wpe" in self.p:
            x = x + self.p["wpe"][: tokens.shape[1]]
        for i in range(self.c["n_layers"]):
            x = self.block(x, f"layers.{i}.")
        head = self.p["wte" if self.c["ties_embeddings"] else "head.weight"]
        logits = F.linear(self.norm(x, "norm"), head)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---------------------------------------------------------------------------- reference

def make_model(c, dtype):
    return Model(c, {name: weights(name, shape).to(dtype).requires_grad_()
                     for name, shape in shapes(c).items()})


def train(model, batch):
    """Losses before each step and after the last."""
    matrices = [p for p in model.p.values() if p.dim() > 1]
    vectors = [p for p in model.p.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=WEIGHT_DECAY),
                                   dict(params=vectors, weight_decay=0.0)], **ADAMW)
    losses = []
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = model.loss(*batch)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses + [model.loss(*batch).item()]


def describe_gradient(name, exact, fp32):
    g, n = exact.flatten().numpy(), exact.numel()
    norm = float(np.linalg.norm(g))
    bits = hashes("signs", n)
    signs = [1.0 - 2.0 * (bits >> np.uint32(31 - j) & np.uint32(1))
             for j in range(N_PROJECTIONS)]
    at = range(n) if n <= N_SAMPLES else sorted(
        set((hashes("samples " + name, N_SAMPLES) % np.uint32(n)).tolist()))
    return dict(name=name, n=n, norm=norm,
                error_fp32=float(np.linalg.norm(fp32.flatten().double().numpy() - g)) / norm,
                projections=[float(np.sum(s * g)) for s in signs],
                at=list(at), values=[float(g[k]) for k in at])


def make_reference(name, c):
    batch = batch_of(c)
    runs = {dtype: make_model(c, dtype) for dtype in (torch.float64, torch.float32)}
    loss = {dtype: model.loss(*batch) for dtype, model in runs.items()}
    for value in loss.values():
        value.backward()
    exact, fp32 = runs[torch.float64], runs[torch.float32]
    return dict(format=1, config=dict(c, name=name), loss=loss[torch.float64].item(),
                loss_fp32=loss[torch.float32].item(),
                losses=train(make_model(c, torch.float64), batch),
                gradients=[describe_gradient(p, exact.p[p].grad, fp32.p[p].grad)
                           for p in exact.p])


def write(reference, path):
    """One line for each gradient."""
    *head, last = reference.items()
    with open(path, "w") as file:
        file.write("{\n")
        for key, value in head:
            file.write(f"  {json.dumps(key)}: {json.dumps(value)},\n")
        file.write(f"  {json.dumps(last[0])}: [\n")
        file.write(",\n".join("    " + json.dumps(g) for g in last[1]))
        file.write("\n  ]\n}\n")


def main():
    torch.set_num_threads(1)
    folder = os.path.dirname(os.path.abspath(__file__))
    for name, config in MODELS.items():
        reference = make_reference(name, config)
        write(reference, os.path.join(folder, name + ".json"))
        worst = max(g["error_fp32"] for g in reference["gradients"])
        print(f"{name}: losses {reference['losses']}, fp32 loss off by "
              f"{abs(reference['loss_fp32'] / reference['loss'] - 1):.1e}, "
              f"gradients by {worst:.1e} at worst")


if __name__ == "__main__":
    main()

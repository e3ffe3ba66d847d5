"""
The training step of GPT-2 124M in plain PyTorch: what bench_training.sh compares mist-exec with.

    torch_gpt2.py DATA SEQ THREADS STEPS     prints the seconds of each step, one per line

Forward, backward and AdamW in fp32 on the CPU, with what PyTorch 1.13 offers: fused linear, layer norm, GELU
(tanh) and softmax kernels, attention as two batched products around a softmax, the head tied to the embedding.
DATA is read as bytes, as mist-exec does. The loss of each step goes to standard error. PyTorch finds its BLAS
by itself; `torch_gpt2.py --blas` says which one that is.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LAYERS, HIDDEN, HEADS, VOCAB, MAX_SEQ = 4, 12, 768, 12, 50257, 1024


class Block(nn.Module):
    def __init__(self, seq):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc1, self.fc2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        causal = torch.full((seq, seq), float("-inf")).triu(1)
        self.register_buffer("causal", causal, persistent=False)

    def attention(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, HEADS, -1).transpose(1, 2) for t in self.qkv(x).split(HIDDEN, dim=2))
        scores = (q * (HIDDEN // HEADS) ** -0.5) @ k.transpose(-2, -1) + self.causal
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, s, HIDDEN))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, seq):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(MAX_SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block(seq) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def name_blas():
    """The library that resolves sgemm in this process."""
    torch.ones(64, 64) @ torch.ones(64, 64)
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "/" in line}
    for word in ("mkl_rt", "openblas", "blis", "atlas", "blas"):
        for file in sorted(files):
            if word in file and "gsl" not in file:
                return file
    return "built in"


def main():
    if sys.argv[1:] == ["--blas"]:
        print(name_blas())
        return
    path, seq, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with open(path, "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()
    model = Gpt2(seq)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(steps):
        at = torch.randint(len(data) - seq, (BATCH,))
        text = torch.stack([data[i : i + seq + 1] for i in at.tolist()])
        start = time.monotonic()
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        value = loss.item()
        print(f"{time.monotonic() - start:.6f}", flush=True)
        print(f"loss {value:.4f}", file=sys.stderr)


main()

"""
The training step of GPT-2 124M in PyTorch 2: what bench_training.sh compares mist-exec with.

    torch_gpt2.py DATA SEQ THREADS STEPS fp32|bf16 eager|compiled     prints the seconds of each step, one per line

Forward, backward and AdamW on the CPU, with the best that PyTorch offers: fused attention and AdamW, the head tied to
the embedding, and with "compiled" torch.compile of forward and backward. bf16 is autocast over fp32 weights. DATA is
read as bytes, as mist-exec does. The loss of each step goes to standard error. `torch_gpt2.py --version` says which
PyTorch that is and which BLAS it has, or why it is no yardstick.
"""
import re
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LAYERS, HIDDEN, HEADS, VOCAB, MAX_SEQ = 4, 12, 768, 12, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc1, self.fc2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def attention(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, HEADS, -1).transpose(1, 2) for t in self.qkv(x).split(HIDDEN, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, s, HIDDEN))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(MAX_SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
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


def name_version():
    """PyTorch and its BLAS; ends the program where they are no yardstick."""
    if not hasattr(F, "scaled_dot_product_attention"):
        sys.exit(f"PyTorch {torch.__version__} has no fused attention (pip install torch==2.9.0)")
    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    blas = found.group(1) if found else "unknown"
    if blas not in ("mkl", "open", "openblas", "blis", "accelerate", "armpl"):
        sys.exit(f"PyTorch {torch.__version__} has the BLAS '{blas}' (pip install torch==2.9.0)")
    return f"PyTorch {torch.__version__}, BLAS {blas}"


def main():
    if sys.argv[1:] == ["--version"]:
        print(name_version())
        return
    path, seq, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    is_bf16, is_compiled = sys.argv[5] == "bf16", sys.argv[6] == "compiled"
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with open(path, "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()
    model = Gpt2()
    forward = torch.compile(model) if is_compiled else model
    decayed = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    for _ in range(steps):
        at = torch.randint(len(data) - seq, (BATCH,))
        text = torch.stack([data[i : i + seq + 1] for i in at.tolist()])
        start = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
            loss = forward(text[:, :-1], text[:, 1:])
        loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        value = loss.item()
        print(f"{time.monotonic() - start:.6f}", flush=True)
        print(f"loss {value:.4f}", file=sys.stderr)


main()

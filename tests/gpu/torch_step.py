"""
A training step of GPT-3 1.3B by PyTorch: what tests/gpu/run compares mist-exec with on the same GPU.

    torch_step.py --model gpt3-1.3b --batch 16 --micro-batch 8 --steps 10 --attention flash|cudnn [--autocast] [--eager]

Forward, backward, clipping and fused AdamW as PyTorch does them best: torch.compile (but with --eager), causal
attention by scaled_dot_product_attention with the backend that is named and no other, micro-batches whose gradients
add up. Weights, gradients and moments are bf16 all over, which moves less memory than mist-exec's fp32 master, moments
and gradients; --autocast keeps weights, gradients and moments in fp32 as it does. No biases, untied head, vocabulary
50304, 2048 tokens: the preset. Prints each step, then "step_s" and the median of all but the first two.
"""
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

#             layers hidden heads vocab  seq
SIZES = {"gpt3-1.3b": (24, 2048, 16, 50304, 2048), "tiny": (2, 256, 4, 256, 16)}


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, seq):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden, bias=False), nn.Linear(hidden, vocab, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt3-1.3b", choices=SIZES)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--attention", default="flash", choices=("flash", "cudnn"))
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    layers, hidden, heads, vocab, seq = SIZES[args.model]
    n = args.batch // args.micro_batch
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_flash_sdp(args.attention == "flash")
    torch.backends.cuda.enable_cudnn_sdp(args.attention == "cudnn")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    with torch.device("cuda"):
        model = Model(layers, hidden, heads, vocab, seq)
    if not args.autocast:
        model = model.to(torch.bfloat16)
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in params if p.dim() != 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    step_of = model if args.eager else torch.compile(model, dynamic=False)
    text = torch.randint(vocab, (n, args.micro_batch, seq + 1), device="cuda")
    times = []
    for i in range(args.steps):
        torch.cuda.synchronize()
        start = time.monotonic()
        total = 0.0
        for k in range(n):
            with torch.autocast("cuda", torch.bfloat16, enabled=args.autocast):
                loss = step_of(text[k, :, :-1], text[k, :, 1:]) / n
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.monotonic() - start)
        print(f"step {i + 1}: {times[-1]:.4f} s, loss {float(total):.4f}", flush=True)
    median = statistics.median(times[2:] or times)
    print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most, {args.batch * seq / median:.0f} tokens/s")
    print(f"step_s {median:.6f}", flush=True)


main()

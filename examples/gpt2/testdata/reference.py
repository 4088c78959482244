"""Writes small random models in Hugging Face's layout, and what PyTorch computes with them.

    python3 reference.py FOLDER

FOLDER/gpt2 is a GPT-2 in one file of float32, FOLDER/llama a Llama in two files of
bfloat16 with an index, FOLDER/qwen3 a Qwen3 in one file of bfloat16. Each has expected.json: the logits of a text, the text that
greedy generation adds, and the loss and the norm of all gradients together. The models
are written out with plain PyTorch as the papers and Hugging Face's code define them.
"""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F


def save(path, tensors):
    """A safetensors file: the size of the header, the header, the bytes."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        raw = t.contiguous().view(torch.uint8 if t.dtype != torch.bfloat16 else torch.int16).numpy().tobytes()
        kind = {torch.float32: "F32", torch.bfloat16: "BF16"}[t.dtype]
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def causal(q, k, v):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return scores.softmax(-1) @ v


def gpt2(w, c, ids):
    h = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    t, n = len(ids), c["n_embd"]
    for i in range(c["n_layer"]):
        p = lambda name: w[f"h.{i}.{name}"]
        norm = lambda x, name: F.layer_norm(x, (n,), p(name + ".weight"), p(name + ".bias"), c["layer_norm_epsilon"])
        conv1d = lambda x, name: x @ p(name + ".weight") + p(name + ".bias")  # GPT-2's weights are [in, out]
        q, k, v = (y.reshape(t, c["n_head"], -1).transpose(0, 1) for y in conv1d(norm(h, "ln_1"), "attn.c_attn").split(n, -1))
        h = h + conv1d(causal(q, k, v).transpose(0, 1).reshape(t, n), "attn.c_proj")
        h = h + conv1d(F.gelu(conv1d(norm(h, "ln_2"), "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")
    return F.layer_norm(h, (n,), w["ln_f.weight"], w["ln_f.bias"], c["layer_norm_epsilon"]) @ w["wte.weight"].T


def llama(w, c, ids):
    h = w["model.embed_tokens.weight"][ids]
    t, heads, groups, d = len(ids), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    rms = lambda x, g: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * g
    inv = 1 / c["rope_theta"] ** (torch.arange(0, d, 2).float() / d)
    if s := c["rope_scaling"]:
        wavelength = 2 * math.pi / inv
        smooth = (s["original_max_position_embeddings"] / wavelength - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        middle = (1 - smooth) * inv / s["factor"] + smooth * inv
        low, high = (s["original_max_position_embeddings"] / s[k] for k in ("low_freq_factor", "high_freq_factor"))
        inv = torch.where(wavelength > low, inv / s["factor"], torch.where(wavelength < high, inv, middle))
    angle = torch.arange(t).float()[:, None] * inv
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    rotate = lambda x: x * cos + torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1) * sin
    for i in range(c["num_hidden_layers"]):
        p = lambda name: w[f"model.layers.{i}.{name}.weight"]
        x = rms(h, p("input_layernorm"))
        q, k = (x @ p("self_attn.q_proj").T).reshape(t, heads, d), (x @ p("self_attn.k_proj").T).reshape(t, groups, d)
        if c["model_type"] == "qwen3":
            q, k = rms(q, p("self_attn.q_norm")), rms(k, p("self_attn.k_norm"))
        q, k = rotate(q.transpose(0, 1)), rotate(k.transpose(0, 1)).repeat_interleave(heads // groups, 0)
        v = (x @ p("self_attn.v_proj").T).reshape(t, groups, d).transpose(0, 1).repeat_interleave(heads // groups, 0)
        h = h + causal(q, k, v).transpose(0, 1).reshape(t, heads * d) @ p("self_attn.o_proj").T
        x = rms(h, p("post_attention_layernorm"))
        h = h + (F.silu(x @ p("mlp.gate_proj").T) * (x @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T
    return rms(h, w["model.norm.weight"]) @ w["lm_head.weight"].T


def write(folder, config, tensors, files, forward, ids):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f, indent=1)
    if files == 1:
        save(f"{folder}/model.safetensors", tensors)
    else:
        where, names = {}, sorted(tensors)
        for i in range(files):
            name = f"model-{i + 1:05}-of-{files:05}.safetensors"
            part = names[i::files]
            save(f"{folder}/{name}", {n: tensors[n] for n in part})
            where.update({n: name for n in part})
        with open(f"{folder}/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {}, "weight_map": where}, f)
    w = {n: t.float().requires_grad_() for n, t in tensors.items() if not n.endswith(".attn.bias")}
    logits = forward(w, config, ids)
    loss = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    loss.backward()
    norm = math.sqrt(sum(float(t.grad.double().pow(2).sum()) for t in w.values()))
    text = list(ids)
    with torch.no_grad():
        for _ in range(12):
            text.append(int(forward(w, config, text)[-1].argmax()))
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({"ids": ids, "logits": [[round(v, 6) for v in row] for row in logits.tolist()], "continued": text[len(ids) :],
                   "loss": loss.item(), "grad_norm": norm}, f)


def normal(std, *shape):
    return torch.randn(*shape) * std


def llama_tensors(c):
    n, d, t = c["hidden_size"], c["head_dim"], {}
    linear = lambda name, o, i: t.__setitem__(name + ".weight", normal(0.4, o, i).bfloat16())
    linear("model.embed_tokens", c["vocab_size"], n)
    linear("lm_head", c["vocab_size"], n)
    t["model.norm.weight"] = (1 + normal(0.1, n)).bfloat16()
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        linear(p + "self_attn.q_proj", 4 * d, n), linear(p + "self_attn.k_proj", 2 * d, n), linear(p + "self_attn.v_proj", 2 * d, n)
        linear(p + "self_attn.o_proj", n, 4 * d)
        linear(p + "mlp.gate_proj", 24, n), linear(p + "mlp.up_proj", 24, n), linear(p + "mlp.down_proj", n, 24)
        if c["model_type"] == "qwen3":
            for name in "q_norm", "k_norm":
                t[p + f"self_attn.{name}.weight"] = (1 + normal(0.1, d)).bfloat16()
        for name in "input_layernorm", "post_attention_layernorm":
            t[p + name + ".weight"] = (1 + normal(0.1, n)).bfloat16()
    return t


def main(root):
    torch.manual_seed(1)
    c = {"model_type": "gpt2", "vocab_size": 61, "n_positions": 40, "n_embd": 12, "n_head": 3, "n_layer": 2, "layer_norm_epsilon": 1e-5,
         "activation_function": "gelu_new", "tie_word_embeddings": True}
    n, t = c["n_embd"], {}
    t["wte.weight"], t["wpe.weight"] = normal(0.5, c["vocab_size"], n), normal(0.5, c["n_positions"], n)
    for i in range(c["n_layer"]):
        t[f"h.{i}.attn.bias"] = torch.ones(1, 1, 4, 4).tril()  # a constant that older files have
        for name, size in ("attn.c_attn", (n, 3 * n)), ("attn.c_proj", (n, n)), ("mlp.c_fc", (n, 4 * n)), ("mlp.c_proj", (4 * n, n)):
            t[f"h.{i}.{name}.weight"], t[f"h.{i}.{name}.bias"] = normal(0.4, *size), normal(0.1, size[1])
        for name in "ln_1", "ln_2":
            t[f"h.{i}.{name}.weight"], t[f"h.{i}.{name}.bias"] = 1 + normal(0.1, n), normal(0.1, n)
    t["ln_f.weight"], t["ln_f.bias"] = 1 + normal(0.1, n), normal(0.1, n)
    write(f"{root}/gpt2", c, t, 1, gpt2, [5, 17, 0, 60, 33, 33, 8, 21, 2, 44])

    c = {"model_type": "llama", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
         "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 32}}
    write(f"{root}/llama", c, llama_tensors(c), 2, llama, [5, 17, 0, 49, 33, 33, 8, 21, 2, 44])

    torch.manual_seed(2)
    c = {"model_type": "qwen3", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
         "rope_theta": 1000000, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "rope_scaling": None,
         "sliding_window": None, "use_sliding_window": False}
    write(f"{root}/qwen3", c, llama_tensors(c), 1, llama, [5, 17, 0, 49, 33, 33, 8, 21, 2, 44])


main(sys.argv[1])

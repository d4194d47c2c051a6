"""Writes tests/vectors/pretrained: small files of weights as Hugging Face's transformers and torchvision save them, and
the logits of their models in pretrained.json. Needs torch, transformers (5.x) and torchvision; run by hand."""
import json, os, tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          ViTConfig, ViTForImageClassification)

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pretrained")
expected = {}


def randomize(model):
    """Every parameter and running statistic differs, so that no exchange of two is hidden."""
    generator = torch.Generator().manual_seed(7)
    for name, value in model.state_dict().items():
        if not value.is_floating_point() or "inv_freq" in name:
            continue
        noise = torch.randn(value.shape, generator=generator) * 0.3
        is_scale = value.dim() == 1 and name.endswith("weight")
        value.copy_((1 + noise if is_scale else noise.abs() + 0.5 if name.endswith("running_var") else noise).half().float())


def write(name, model, inputs, run, half=False):
    model.eval()
    with torch.no_grad():
        randomize(model)
        logits = run(model, inputs)
    if hasattr(model, "save_pretrained"):  # its names are those of published files
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tensors = load_file(os.path.join(folder, "model.safetensors"))
    else:
        tensors = model.state_dict()
    tensors = {n: (t.half() if half and t.is_floating_point() else t).contiguous().clone() for n, t in tensors.items()}
    if name == "gpt2":
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)  # of older versions
    save_file(tensors, os.path.join(FOLDER, f"{name}.safetensors"), metadata={"format": "pt"})
    expected[name] = {"inputs": inputs.tolist(), "logits": [round(v, 7) for v in logits.double().flatten().tolist()],
                      "shape": list(logits.shape)}


torch.manual_seed(0)
tokens = torch.randint(0, 23, (2, 8))
sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=23)
write("gpt2", GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=8, vocab_size=23)), tokens, lambda m, x: m(x).logits)
write("llama", LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=8, rms_norm_eps=1e-5, rope_theta=10000.0)),
      tokens, lambda m, x: m(x).logits)
bert = BertForMaskedLM(BertConfig(**sizes, max_position_embeddings=8))
write("bert", bert, tokens, lambda m, x: m(x).logits)
# the same weights, rows with padding behind 5 and 8 tokens
padded = tokens.clamp(min=1)
padded[0, 5:] = 0
with torch.no_grad():
    logits = bert(padded, attention_mask=(padded != 0).long()).logits
expected["bert_padded"] = {"inputs": padded.tolist(), "lengths": [5, 8], "shape": list(logits.shape),
                           "logits": [round(v, 7) for v in logits.double().flatten().tolist()]}

write("vit", ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
                                                 image_size=8, patch_size=4, num_labels=3)), torch.randn(2, 3, 8, 8), lambda m, x: m(x).logits)


class Narrow(torchvision.models.ResNet):
    """torchvision's ResNet with a 16th of the channels after the stem."""
    def _make_layer(self, block, planes, *args, **kwargs):
        return super()._make_layer(block, planes // 32, *args, **kwargs)


resnet = Narrow(torchvision.models.resnet.BasicBlock, [1, 2, 1, 1], num_classes=5)
resnet.fc = torch.nn.Linear(16, 5)
write("resnet", resnet, torch.randn(2, 3, 32, 32).half().float(), lambda m, x: m(x), half=True)
expected["resnet"].pop("inputs")  # the test draws them: see its formula
images = torch.tensor([((i * 7919) % 257) / 128 - 1 for i in range(2 * 3 * 32 * 32)]).reshape(2, 3, 32, 32)
with torch.no_grad():
    expected["resnet"]["logits"] = [round(v, 7) for v in resnet(images).double().flatten().tolist()]
with open(os.path.join(FOLDER, "pretrained.json"), "w", encoding="utf-8") as file:
    json.dump(expected, file)
    file.write("\n")

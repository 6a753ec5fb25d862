"""A small GPT-2 or Llama trained by a plain loop or by Trainer under autocast; with a loss of its own by hand."""

import tempfile

import torch
import torch.nn.functional as F
import transformers
from cross_entropy_chunked import chunked_cross_entropy

BATCH, CONTEXT, VOCABULARY = 8, 128, 16384


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, _):
        tokens = torch.zeros(CONTEXT, dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=VOCABULARY))


def llama():
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY
    )
    return transformers.LlamaForCausalLM(config)


def loop(model):
    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT), device="cuda")
        optimizer.zero_grad()
        output = model(input_ids=tokens, labels=tokens)
        output.loss.backward()
        optimizer.step()


def trainer(model):
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH,
        max_steps=4,
        bf16=True,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    transformers.Trainer(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()


def with_loss_in_chunks(model):
    def loss_function(logits, labels, num_items_in_batch=None, **_):  # logits: what the head gave
        targets = F.pad(labels, (0, 1), value=-100)[..., 1:]
        return chunked_cross_entropy(logits, model.get_output_embeddings().weight, targets, num_items_in_batch)

    model.get_output_embeddings().forward = lambda hidden: hidden  # the loss does it
    model.loss_function = loss_function
    return model


def main(kind, way, by_hand=""):
    model = {"gpt2": gpt2, "llama": llama}[kind]()
    {"loop": loop, "trainer": trainer}[way](with_loss_in_chunks(model) if by_hand else model)

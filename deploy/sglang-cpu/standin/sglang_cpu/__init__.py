"""A plugin of SGLang 0.5.23: speculative decoding on its torch_native attention backend.

SGLang's CPU kernels for it need AVX-512; torch_native runs anywhere but knows only plain decoding.
The plugin adds target verification, draft extension, and multi-step drafts with topk 1.  SGLang
loads it through its own entry point group; its files are not changed.

Set SGLANG_CPU_HANG_FILE to a path to make the model hang as long as that file exists: a request
that does not end, and after a while SGLang's own watchdog.
"""

# ruff: noqa: FBT002  (the signatures are SGLang's)

import os
import time
from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention


def register():
    """Called by SGLang in every process, before its backends are used."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.speculative.draft_utils import DraftBackendFactory

    _extend_speculatively(TorchNativeAttnBackend)
    _draft_in_steps(TorchNativeAttnBackend, DraftBackendFactory)
    if path := os.environ.get("SGLANG_CPU_HANG_FILE"):
        _hang_while_exists(TorchNativeAttnBackend, path)


def _extend_speculatively(backend_class):
    """Give forward_extend the two speculative modes, each request with its own mask."""
    from sglang.srt.layers.attention.torch_native_backend import KVWriteLoc

    plain_forward_extend = backend_class.forward_extend

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        mode = forward_batch.forward_mode
        if not (mode.is_target_verify() or forward_batch.extend_prefix_lens is None):
            return plain_forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache)
        if save_kv_cache and k is not None:
            slots = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, slots, k, v)

        batch = forward_batch.batch_size
        seq_lens = forward_batch.seq_lens[:batch].tolist()
        if mode.is_target_verify():
            query_lens = [forward_batch.spec_info.draft_token_num] * batch
            prefix_lens = seq_lens
        else:
            query_lens = forward_batch.extend_seq_lens[:batch].tolist()
            prefix_lens = [s - n for s, n in zip(seq_lens, query_lens, strict=True)]
        masks = _masks(forward_batch.spec_info if mode.is_target_verify() else None, query_lens, prefix_lens)

        queries = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = queries.new_empty((queries.shape[0], layer.tp_q_head_num, layer.v_head_dim))
        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        rows = self.req_to_token_pool.req_to_token[forward_batch.req_pool_indices[:batch]]
        ends = torch.tensor(query_lens).cumsum(0).tolist()
        for (start, end), row, mask in zip(pairwise([0, *ends]), rows, masks, strict=True):
            slots = row[: mask.shape[1]].long()
            attended = scaled_dot_product_attention(
                queries[start:end].transpose(0, 1)[None],
                keys[slots].to(q.dtype).transpose(0, 1)[None],
                values[slots].to(q.dtype).transpose(0, 1)[None],
                attn_mask=mask[None, None],
                scale=layer.scaling,
                enable_gqa=layer.tp_q_head_num != layer.tp_k_head_num,
            )
            out[start:end] = attended[0].transpose(0, 1)
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    backend_class.forward_extend = forward_extend


def _masks(spec_info, query_lens, prefix_lens):
    """One boolean mask [query, prefix + query] a request: the draft tree's own, or causal."""
    custom = None
    if spec_info is not None and spec_info.tree_topk != 1 and spec_info.custom_mask is not None:
        custom = spec_info.custom_mask.view(-1).bool()
    if custom is None or not custom.numel():
        return [
            torch.arange(p + n)[None, :] <= (p + torch.arange(n))[:, None]
            for n, p in zip(query_lens, prefix_lens, strict=True)
        ]
    # SGLang hands this backend either the whole mask or only its square of draft tokens, in
    # which case the committed prefix is visible to every one of them.
    whole = custom.numel() >= sum(n * (n + p) for n, p in zip(query_lens, prefix_lens, strict=True))
    masks, at = [], 0
    for n, p in zip(query_lens, prefix_lens, strict=True):
        width = p + n if whole else n
        mask = custom[at : at + n * width].view(n, width)
        at += n * width
        masks.append(mask if whole else torch.cat([torch.ones(n, p, dtype=torch.bool), mask], 1))
    return masks


def _draft_in_steps(backend_class, factory_class):
    """Enter torch_native into the draft workers' table of backends."""

    class Step(backend_class):
        """Attention of draft step number `step`: it sees one token more per step."""

        def __init__(self, runner, step):
            super().__init__(runner)
            self.step = step

        def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True):
            committed = forward_batch.seq_lens
            forward_batch.seq_lens = committed + self.step + 1
            try:
                return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)
            finally:
                forward_batch.seq_lens = committed

    class Steps:
        def __init__(self, runner, topk, num_steps):
            if topk != 1:
                raise ValueError(f"--speculative-eagle-topk must be 1 on a CPU, not {topk}")
            self.topk, self.speculative_num_steps, self.device = topk, num_steps, runner.device
            self.attn_backends = [Step(runner, i) for i in range(num_steps - 1)]

        def init_forward_metadata(self, forward_batch):
            for backend in self.attn_backends:
                backend.init_forward_metadata(forward_batch)

    plain_create_backend = factory_class._create_backend

    def _create_backend(self, name, backend_map, *args, **kwargs):
        def torch_native():
            runner = self.draft_model_runner
            # The factory asks with one table for decoding and another for extending.
            if any("decode" in make.__name__ for make in backend_map.values()):
                return "torch_native", Steps(runner, self.topk, self.speculative_num_steps)
            return "torch_native", backend_class(runner)

        table = {**backend_map, "torch_native": torch_native}
        return plain_create_backend(self, name, table, *args, **kwargs)

    factory_class._create_backend = _create_backend


def _hang_while_exists(backend_class, path):
    def hanging(forward):
        def hang_and_forward(self, *args, **kwargs):
            while os.path.exists(path):
                time.sleep(0.1)
            return forward(self, *args, **kwargs)

        return hang_and_forward

    backend_class.forward_decode = hanging(backend_class.forward_decode)
    backend_class.forward_extend = hanging(backend_class.forward_extend)

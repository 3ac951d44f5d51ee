"""A stand-in for the CPU kernels that SGLang 0.5.23 imports when SGLANG_USE_CPU_ENGINE=1.

The real package needs a build from source and a processor with AVX-512.  These are the same
contracts in plain PyTorch, right rather than fast, for tiny models.  A kernel that is not here
raises AttributeError or ImportError, as a missing kernel does in the real package.
"""

import ctypes

import torch

__version__ = "0.0.0+cpu.standin"


def _flat(tensor):
    return tensor.reshape(-1).tolist()


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    """Move KV rows inside each layer's buffer; strides are bytes per row."""
    targets, sources = _flat(tgt_loc), _flat(src_loc)
    for base, stride in zip(_flat(data_ptrs), _flat(strides), strict=True):
        # All rows are read before any is written: source and target may overlap.
        rows = [ctypes.string_at(base + i * stride, stride) for i in sources]
        for target, row in zip(targets, rows, strict=True):
            ctypes.memmove(base + target * stride, row, stride)


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    """Shift each request's tokens left by one and put the newly chosen token at the end."""
    chosen = topk_index.reshape(-1)
    for i, (start, length) in enumerate(zip(_flat(extend_start_loc), _flat(extend_seq_lens), strict=True)):
        if length > 1:
            input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        position = int(select_index[i]) if select_index is not None else start + length - 1
        input_ids[position] = chosen[i]


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    """Pick the last accepted token of each request."""
    count = accept_lens.numel()
    index = torch.arange(count) * accept_stride + accept_lens.reshape(-1).long() - 1
    bonus_tokens[:count] = accept_tokens.reshape(-1)[index].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    """Gather the cache slots of accepted tokens; -1 marks a rejected one."""
    accepted = accept_index.reshape(-1)
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted]


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    """Copy the next topk × num_steps slots of each request's row out of the pool."""
    width = topk * num_steps
    for i, (row, length) in enumerate(zip(_flat(req_pool_indices), _flat(seq_lens), strict=True)):
        slots = req_to_token[row, length : length + width]
        out_cache_loc[i * width : (i + 1) * width] = slots.to(out_cache_loc.dtype)


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """Copy slots start..end of each request's row out of the pool, one request after the other."""
    at = 0
    spans = zip(_flat(req_pool_indices), _flat(start_offset), _flat(end_offset), strict=True)
    for row, start, end in spans:
        out_cache_loc[at : at + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        at += end - start


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """The way back: write the slots into each request's row of the pool."""
    at = 0
    spans = zip(_flat(req_pool_indices), _flat(start_offset), _flat(end_offset), strict=True)
    for row, start, end in spans:
        req_to_token[row, start:end] = out_cache_loc[at : at + end - start].to(req_to_token.dtype)
        at += end - start


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    verified_seq_len,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    draft_token_num,
    tree_mask_mode,
):
    """Lay out the draft tree of each request: links child and sibling, positions, attention mask."""
    n = draft_token_num
    batch = verified_seq_len.numel()
    parents = parent_list.reshape(batch, -1).tolist() if parent_list.numel() else [[]] * batch
    selected = selected_index.reshape(batch, -1).tolist()
    index_out, child_out, sibling_out = (
        out.view(-1) for out in (retrieve_index, retrieve_next_token, retrieve_next_sibling)
    )
    position_out, mask = positions.view(-1), tree_mask.view(-1)
    full_mask = int(tree_mask_mode) == 0
    prefix = 0
    for b, length in enumerate(_flat(verified_seq_len)):
        base = n * n * b + prefix * n
        prefix += length
        picked = selected[b]

        def parent_of(node, picked=picked, b=b):
            """Tree index of a selected node's parent: 0 the root, None a pruned branch."""
            p = picked[node - 1] // topk
            if p == 0:
                return 0
            token = parents[b][p]
            return picked.index(token) + 1 if token in picked[: n - 1] else None

        child, sibling = [-1] * n, [-1] * n
        for node in range(n - 1, 0, -1):
            parent = parent_of(node)
            if parent is None:
                continue
            sibling[node], child[parent] = child[parent], node
        rows = slice(b * n, (b + 1) * n)
        index_out[rows] = torch.arange(b * n, (b + 1) * n)
        child_out[rows] = torch.tensor(child)
        sibling_out[rows] = torch.tensor(sibling)
        position_out[b * n] = length
        for node in range(n):
            at = base + (length + n) * node + length + 1 if full_mask else n * n * b + n * node + 1
            mask[at - 1] = 1
            mask[at : at + n - 1] = 0
            level, ancestor = 0, node
            while ancestor and level < depth:
                level += 1
                mask[at + ancestor - 1] = 1
                parent = parent_of(ancestor)
                if parent is None:
                    break
                ancestor = parent
            if node:
                position_out[b * n + node] = level + length


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """Walk each draft tree along the target model's own choices; fill what was accepted."""
    batch = candidates.shape[0]
    steps = accept_index.shape[1]
    target, predicted, accepted_num = target_predict.view(-1), predicts.view(-1), accept_token_num.view(-1)
    for b in range(batch):
        last = int(retrive_index[b, 0])
        accept_index[b, 0] = last
        accepted, node = 0, 0
        for _ in range(1, steps):
            node = int(retrive_next_token[b, node])
            while node != -1 and int(candidates[b, node]) != int(target[last]):
                node = int(retrive_next_sibling[b, node])
            if node == -1:
                break
            predicted[last] = target[last]
            accepted += 1
            last = int(retrive_index[b, node])
            accept_index[b, accepted] = last
        accepted_num[b] = accepted
        predicted[last] = target[last]

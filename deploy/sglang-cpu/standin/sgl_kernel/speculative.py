"""The kernel that NGRAM speculative decoding needs."""

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    batch_size,
    draft_token_num,
):
    """Read the links child and sibling and the positions of each draft tree back from its mask."""
    n, batch = draft_token_num, batch_size
    mask = tree_mask.reshape(-1)[: batch * n * n].reshape(batch, n, n).bool()
    ancestors = mask & torch.tril(torch.ones(n, n, dtype=torch.bool), -1)
    index = torch.arange(n)
    column, row = index.view(1, n, 1), index.view(1, 1, n)
    depth = ancestors.sum(2) + verified_seq_len[:batch].reshape(batch, 1)
    parent = torch.where(ancestors, row, -1).amax(2)
    first_child = torch.where(ancestors, column, n).amin(1)
    child = torch.where(first_child < n, first_child, -1)
    younger = (parent[:, :, None] == parent[:, None, :]) & (column > row)
    first_younger = torch.where(younger, column, n).amin(1)
    sibling = torch.where((parent >= 0) & (first_younger < n), first_younger, -1)
    size = batch * n
    positions.view(-1)[:size] = depth.reshape(-1).to(positions.dtype)
    retrieve_index.view(-1)[:size] = torch.arange(size)
    retrieve_next_token.view(-1)[:size] = child.reshape(-1)
    retrieve_next_sibling.view(-1)[:size] = sibling.reshape(-1)
